"""The contract that every protocol keeps, for tests of your own; imported when asked for."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulations.contract.checking import check_protocol as check_protocol
    from simulations.contract.checking import laws as laws
    from simulations.contract.checking import parametrize as parametrize
    from simulations.contract.law import Law as Law
else:
    from fedhist.base.lazy import public_names

    __getattr__, __dir__, __all__ = public_names(__name__)
