from typing import Literal, get_args

Assumption = Literal["nothing", "same-distribution"]
ASSUMPTIONS = get_args(Assumption)
NOTHING: Assumption = "nothing"
