"""What touches Flower: messages on the wire, and the host that sets up a process's apps.

Its public names put fedhist into your own Flower app: :func:`client_app`, :func:`server_app`,
:class:`Policy` and :class:`Strategy`. Each is imported when it is asked for.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clients.app import client_app as client_app
    from clients.guard import Policy as Policy
    from server.app import server_app as server_app
    from server.strategy import Strategy as Strategy
else:
    from fedhist.base.lazy import public_names

    __getattr__, __dir__, __all__ = public_names(__name__)
