"""Which way a precision reaches TensorRT: chosen and explained here alone (docs/adr/0007)."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from edge.engine.kind import QdqForm
from edge.engine.tensorrt.binding import Abilities
from edge.errors import EngineError
from edge.types import Precision

__all__ = ["ChosenRoute", "Route", "WantedRoute", "choose_routes", "routes_of"]


class Route(str, enum.Enum):
    """A way; the names are those of the `route` option."""

    IMPLICIT_CACHE = "implicit-cache"  # float model, the table as a calibration cache; the builder picks where
    IMPLICIT_RANGES = "implicit-ranges"  # float model, the table as ranges of tensors; the builder picks where
    QDQ_WEAK = "qdq-weak"  # float32 model with Q/DQ pairs; the builder picks float16 for the rest
    QDQ_STRONG = "qdq-strong"  # float16 model with Q/DQ pairs; everything computes in the types that the file states
    FLOAT_WEAK = "float-weak"  # float32 model; the builder may use float16 where that was asked for
    FLOAT_STRONG = "float-strong"  # the model in the precision that was asked for

    @property
    def is_strongly_typed(self) -> bool:
        """Whether the network states every type."""
        return self in (Route.QDQ_STRONG, Route.FLOAT_STRONG)

    @property
    def is_implicit(self) -> bool:
        """Whether the builder gets scales alone, and decides itself what computes in INT8."""
        return self in (Route.IMPLICIT_CACHE, Route.IMPLICIT_RANGES)

    @property
    def is_explicit(self) -> bool:
        """Whether Q/DQ pairs in the file say what computes in INT8."""
        return self in (Route.QDQ_WEAK, Route.QDQ_STRONG)


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedRoute:
    """Request for a route."""

    precision: Precision
    forced: Route | None = None  # the `route` option; None: `auto`
    has_own_qdq: bool = False  # the model carries Q/DQ pairs itself
    is_for_dla: bool = False  # it is to run on a DLA core
    beyond_ranges: tuple[str, ...] = ()  # what a table says that an implicit way leaves out
    without_centres: bool = False  # Q/DQ pairs leave out the centres of the table


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenRoute:
    """A route, why it was taken, and how a Q/DQ model has to be written for it."""

    route: Route
    why: str
    form: QdqForm


def routes_of(abilities: Abilities) -> tuple[Route, ...]:
    """Return the ways to INT8 that a library has, the best first.

    Explicit ways come first: the pairs stand where they were proven, and nowhere else. Of these the weakly typed one,
    because the builder picks the faster float type for the rest.
    """
    ways = (
        (Route.QDQ_WEAK, abilities.has_precision_flags),
        (Route.QDQ_STRONG, abilities.has_strong_typing),
        (Route.IMPLICIT_CACHE, abilities.has_precision_flags and abilities.has_calibrators),
        (Route.IMPLICIT_RANGES, abilities.has_precision_flags and abilities.has_dynamic_ranges),
    )
    return tuple(route for route, is_there in ways if is_there)


def choose_routes(wanted: WantedRoute, abilities: Abilities) -> tuple[ChosenRoute, ...]:
    """Return the route, and behind it what is left where that cannot be built: the best of the other sort.

    What has no implementation as Q/DQ pairs may have one where the builder picks itself; a second way of the same sort
    would fail as the first did, minutes later. Raises `EngineError` if the library does not have the one that is asked
    for, or it does not fit the model.
    """
    ways = [_route(wanted, abilities)]
    is_free = wanted.forced is None and not wanted.has_own_qdq and not wanted.is_for_dla
    if wanted.precision is Precision.INT8 and is_free:
        others = [one for one in routes_of(abilities) if one.is_implicit != ways[0].route.is_implicit]
        ways += [_chosen(one, "scales for a builder that picks itself", abilities) for one in others[:1]]
    return tuple(_with_losses(one, wanted) for one in ways)


def _with_losses(way: ChosenRoute, wanted: WantedRoute) -> ChosenRoute:
    """Return `way` with what it leaves out of the table."""
    if way.route.is_implicit:
        return replace(way, why=way.why + "".join(f"; without {part}" for part in wanted.beyond_ranges))
    if not wanted.without_centres or not way.route.is_explicit:
        return way
    why = f"{way.why}; without the centres of the table"
    return replace(way, why=why, form=replace(way.form, has_centres=False))


def _route(wanted: WantedRoute, abilities: Abilities) -> ChosenRoute:
    if wanted.precision is not Precision.INT8:
        return _float(wanted, abilities)
    there = routes_of(abilities)
    if not there:
        raise EngineError("this TensorRT has no way to INT8", hint="use fp16")
    if wanted.forced is not None:
        return _forced(wanted, wanted.forced, abilities)
    if wanted.is_for_dla and not wanted.has_own_qdq and Route.IMPLICIT_CACHE in there:
        return _chosen(Route.IMPLICIT_CACHE, "a DLA core takes scales from a calibration cache only", abilities)
    return _chosen(there[0], _why(there[0], abilities), abilities)


def _forced(wanted: WantedRoute, route: Route, abilities: Abilities) -> ChosenRoute:
    there = routes_of(abilities)
    if route not in there:
        names = ", ".join(one.value for one in there)
        raise EngineError(f"engine.route {route.value}: this TensorRT has {names}", hint="use route: auto")
    if wanted.has_own_qdq and route.is_implicit:
        raise EngineError(
            f"engine.route {route.value}: the model carries Q/DQ pairs, which state their scales themselves",
            hint="use route: auto, or the float model and a table",
        )
    return _chosen(route, "asked for in the pipeline", abilities)


def _float(wanted: WantedRoute, abilities: Abilities) -> ChosenRoute:
    route = Route.FLOAT_WEAK if abilities.has_precision_flags else Route.FLOAT_STRONG
    return _chosen(route, f"{wanted.precision.value} needs no scales", abilities)


def _chosen(route: Route, why: str, abilities: Abilities) -> ChosenRoute:
    form = QdqForm(
        float_type="float16" if route is Route.QDQ_STRONG else "float32",
        weights="int8" if abilities.takes_int8_weights else "float",
    )
    return ChosenRoute(route=route, why=why, form=form)


def _why(route: Route, abilities: Abilities) -> str:
    if route is Route.QDQ_STRONG:
        return "this TensorRT computes in the types of the file only"
    weights = "" if abilities.takes_int8_weights else "; weights in float, as TensorRT 8 takes them"
    return f"Q/DQ pairs where they were proven, scales in float32, FP16 beside{weights}"
