"""What a policy is: a name, and a function from a demand to an allocation."""

from __future__ import annotations

from typing import Protocol

from schedsearch.cluster.allocation import Allocation
from schedsearch.cluster.demand import Demand


class Policy(Protocol):
    """Decides who runs where for what share of the time.

    It may keep what it knows from one decision to the next, to be faster or not to move jobs; decisions of
    one run go to one object, in the order of time.
    """

    @property
    def name(self) -> str:
        """Return its name, as on the command line."""

    @property
    def shares_space(self) -> bool:
        """Return whether it looks at configurations of two jobs; where not, nobody need make them."""

    def allocate(self, demand: Demand) -> Allocation:
        """Return an allocation.

        Raises:
            InfeasibleError: Nothing does what the policy asks for; the message says why.
        """
