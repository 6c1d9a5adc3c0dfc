"""Every choice and threshold of an integral over hyperparameters."""

import sys
from dataclasses import dataclass, field, replace
from typing import Literal

from pymc_skewgp._gaussian.weights import Estimate
from pymc_skewgp._learn.averaging.annealing import AnnealingSettings
from pymc_skewgp._learn.settings import OptimizerSettings, StartSettings

Method = Literal["auto", "importance", "surrogate", "nuts"]
METHODS: tuple[Method, ...] = ("auto", "importance", "surrogate", "nuts")


@dataclass(frozen=True)
class ModeSettings:
    """Where the posterior modes of the hyperparameters are looked for.

    With a lengthscale for each input there are as many modes as ways to explain the data by some of
    the inputs, and few ascents end in the one with the mass.

    Attributes
    ----------
    fewest_restarts, most_restarts : int
        Ascents besides that from the model's initial point: one for each coordinate, within these.
    above : float
        Nats by which a point of the importance sampling has to be above every mode to begin an
        ascent of its own.
    margin : float
        Nats of Laplace's log evidence below the best mode within which another one counts.
    same_value, same_place : float
        Within which two modes are one.
    least_curvature : float
        Least eigenvalue of the negative Hessian: no proposal is wider than three units by it.
    boxes : int
        How often an ascent that has ended at an end of its box goes on in one around that.
    start : StartSettings
    optimizer : OptimizerSettings
        A mode only begins the importance sampling: a tenth of a nat is near enough.
    """

    fewest_restarts: int = 2
    most_restarts: int = 8
    above: float = 1.0
    margin: float = 9.0
    same_value: float = 0.1
    same_place: float = 0.2
    least_curvature: float = 0.1
    boxes: int = 6
    start: StartSettings = field(default_factory=lambda: StartSettings(candidates=8))
    optimizer: OptimizerSettings = field(
        default_factory=lambda: OptimizerSettings(
            max_iterations=60, tolerance=1e-2, gradient_tolerance=5e-2, first_step=1.0
        )
    )

    @property
    def farthest(self) -> float:
        """From the origin of an ascent: where it gets in all its boxes but the last."""
        return (self.boxes - 1) * self.start.half_width

    def restarts(self, n_coordinates: int) -> int:
        """How many."""
        return min(max(n_coordinates, self.fewest_restarts), self.most_restarts)


@dataclass(frozen=True)
class ImportanceSettings:
    """Rounds of adaptive importance sampling, and when they are enough.

    Attributes
    ----------
    n_points, points_per_coordinate : int
        Points of a round: the first, or the second times the number of coordinates if that is more.
    n_replicates : int
        Independent randomisations in each round, whose spread is the standard error.
    df : float
        Degrees of freedom of the proposal's components: tails heavier than the target's.
    widen : float
        Factor of the covariances that are learnt.
    spread_modes : float
        Distance, in standard deviations, of the further components of each mode at the start.
    least_share : float
        Weight that no component of the mixture falls below.
    em_steps : int
        Of the mixture's weights, means and covariances after each round.
    prior_share : float
        Of each round's points, drawn from the prior whatever was learnt: tails that no round has
        seen have bounded weights.
    enough : int
        Effective sample size at which no further round is made, in place of the points at which
        the evidence is corrected where these are more.
    rounds, more_rounds : int
        On the first rung, and on the second.
    least_ess : float
        Relative ESS below which a rung is not accepted.
    least_exact_ess : float
        Relative ESS of the exact evidences over EP's below which a warning says so: the rungs are
        climbed by EP's alone, and nothing else would.
    promising : float
        Relative ESS of the last round below which more rounds are not tried.
    """

    n_points: int = 192
    points_per_coordinate: int = 48
    n_replicates: int = 16
    df: float = 6.0
    widen: float = 1.1
    spread_modes: float = 0.8
    least_share: float = 0.02
    em_steps: int = 3
    prior_share: float = 0.1
    enough: int = 320
    rounds: int = 4
    more_rounds: int = 12
    least_ess: float = 0.15
    least_exact_ess: float = 0.3
    promising: float = 0.01

    def points_of_round(self, n_coordinates: int) -> int:
        """A multiple of the replicates."""
        wanted = max(self.n_points, self.points_per_coordinate * n_coordinates)
        return -(-wanted // self.n_replicates) * self.n_replicates

    def accepts(self, estimate: Estimate) -> bool:
        """Whether weights are good enough to be used."""
        return estimate.relative_ess >= self.least_ess and not estimate.heavy_tailed


@dataclass(frozen=True)
class SurrogateSettings:
    """A surrogate of the log evidence, and how many points it learns from.

    Attributes
    ----------
    points_per_coordinate, fewest_points : int
        Of the first fit: the first times the number of coordinates, no fewer than the second.
    n_groups : int
        Independent groups of draws from the surrogate, whose spread is the standard error.
    points_of_group : int
        Points that each of them adds in a round.
    cloud, final_cloud : int
        Draws in a group, while the surrogate is learnt and after that.
    good : float
        Relative ESS of a round's points below which there is another one.
    margin : float
        Nats by which the bound on the density is above all that is known.
    portion : int
        Of the last draws of each group, evaluated at once.
    most_points : int
        From which on no further round is made.
    widen, least_share, em_steps
        Of the mixture from which the next draws begin, as of `ImportanceSettings`.
    annealing : AnnealingSettings
    """

    points_per_coordinate: int = 2
    fewest_points: int = 32
    n_groups: int = 16
    points_of_group: int = 3
    cloud: int = 16
    final_cloud: int = 64
    portion: int = 8
    good: float = 0.25
    margin: float = 2.0
    most_points: int = 400
    widen: float = 1.2
    least_share: float = 0.02
    em_steps: int = 2
    annealing: AnnealingSettings = field(default_factory=AnnealingSettings)

    def first_points(self, n_coordinates: int) -> int:
        """Of the first fit."""
        return max(self.points_per_coordinate * n_coordinates, self.fewest_points)


@dataclass(frozen=True)
class ChainSettings:
    """NUTS on the posterior with EP's evidence, where importance sampling does not do.

    Attributes
    ----------
    chains, tune, draws : int
        Chains are shared out among the modes in proportion to their mass, two to each at least.
    target_accept : float
    largest_r_hat : float
        From here on the chains have not converged.
    least_ess : int
        Effective draws that they must have, at least.
    """

    chains: int = 4
    tune: int = 250
    draws: int = 250
    target_accept: float = 0.85
    largest_r_hat: float = 1.05
    least_ess: int = 100


@dataclass(frozen=True)
class IntegrationSettings:
    """Of `integrate`.

    Attributes
    ----------
    n_evidences : int
        Points at which the exact evidence is estimated, and f drawn.
    quick_evidences, quick_rows : int
        In place of it where draws at many hyperparameters are made side by side, up to so many
        rows; for more rows fewer, so that the time stays about the same.
    many_rows_evidences : int
        In place of it with many rows, each of which has a posterior of its own.
    n_candidates : int
        Weighted draws of u behind each of these evidences, and draws of f.
    spare : float
        Draws of f at each point over what equal weights would ask for.
    most_binary : int
        Binary entries whose values are all tried.
    method : {"auto", "importance", "surrogate", "nuts"}
        Which rungs of the ladder are tried.
    most_coordinates : int
        Above it importance sampling from mixtures is not tried, unless it is asked for.
    most_of_surrogate : int
        Above it the surrogate is not tried, unless it is asked for.
    most_rows_of_chains : int
        Above it NUTS is not tried, unless it is asked for: some thousands of evaluations of EP with
        its gradient, each of which costs as the cube of the rows.
    modes : ModeSettings
    importance : ImportanceSettings
    surrogate : SurrogateSettings
    chains : ChainSettings
    """

    n_evidences: int = 256
    quick_evidences: int = 1024
    quick_rows: int = 100
    many_rows_evidences: int = 32
    n_candidates: int = 64
    spare: float = 1.5
    most_binary: int = 3
    method: Method = "auto"
    most_coordinates: int = 5
    most_of_surrogate: int = 80
    most_rows_of_chains: int = sys.maxsize
    modes: ModeSettings = field(default_factory=ModeSettings)
    importance: ImportanceSettings = field(default_factory=ImportanceSettings)
    surrogate: SurrogateSettings = field(default_factory=SurrogateSettings)
    chains: ChainSettings = field(default_factory=ChainSettings)

    def for_many_rows(self) -> "IntegrationSettings":
        """With few points: an evaluation takes a second, and many rows have a normal posterior."""
        importance = replace(
            self.importance,
            n_points=64,
            points_per_coordinate=16,
            enough=64,
            more_rounds=8,
            least_ess=0.1,
        )
        return replace(
            self,
            n_evidences=self.many_rows_evidences,
            most_rows_of_chains=0,
            importance=importance,
            surrogate=replace(self.surrogate, good=0.15, most_points=192, portion=4),
        )

    def evaluations(self, n_coordinates: int) -> int:
        """Of EP, about as many as the importance sampling takes where all goes well."""
        if n_coordinates <= self.most_coordinates:
            return 2 * self.importance.points_of_round(n_coordinates)
        learnt = self.surrogate.first_points(n_coordinates) + self.surrogate.most_points // 2
        return learnt + 2 * max(self.importance.enough, self.n_evidences)

    def evidences(self, n_rows: int, side_by_side: bool) -> int:
        """How many, where nothing is asked for."""
        if not side_by_side:
            return self.n_evidences
        share = min(1.0, (self.quick_rows / max(n_rows, 1)) ** 2)
        return max(self.n_evidences, int(share * self.quick_evidences))
