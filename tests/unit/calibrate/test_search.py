"""The search, over errors that are known functions of the choice: the best choice can be worked out by hand."""

import random

import pytest

from edge.calibrate import search as package
from edge.calibrate.measurements import FloatLimits, Int8Choice, Layer
from edge.quantize.trials import Trials

METHODS = ("mse", "percentile", "minmax")
RANGES = dict(zip(METHODS, (1.0, 2.0, 4.0), strict=True))
IMAGES = 40  # 16 to try on, 24 to confirm


class Additive:
    """An error that is the sum of what each layer in INT8 and each tensor's method cost; remembers what it was asked.

    Args:
        layers: what a layer adds while it is in INT8, by name.
        tensors: what a method adds, by tensor and method.
        base: what nothing can mend.
    """

    def __init__(self, layers=None, tensors=None, *, base=0.0):
        self.layers, self.tensors, self.base = layers or {}, tensors or {}, base
        self.asked = []

    def __call__(self, choices, images):
        self.asked += [(frozenset(c.methods.items()), frozenset(c.floats), images) for c in choices]
        return [tuple(self.error(choice) for _ in images) for choice in choices]

    def error(self, choice):
        in_int8 = sum(cost for name, cost in self.layers.items() if name not in choice.floats)
        by_method = sum(costs[choice.methods[tensor]] for tensor, costs in self.tensors.items())
        return self.base + in_int8 + by_method


def search(ranges, layers, measure, *, images=IMAGES, **more):
    return package.search(ranges, layers, measure, images=images, **more)


def layers_of(count, *, share=0.01, depthwise=(), last=()):
    return [Layer(name=f"n{i}", mac_share=share, is_depthwise=i in depthwise, is_last=i in last) for i in range(count)]


def ranges_of(*tensors):
    return dict.fromkeys(tensors or ("images",), RANGES)


def share(choice, layers, *, is_depthwise=(True, False)):
    return sum(
        layer.mac_share for layer in layers if layer.name in choice.floats and layer.is_depthwise in is_depthwise
    )


def test_one_bad_layer_among_a_hundred_is_found_and_said():
    measure = Additive({"n37": 1.0}, base=0.1)

    found = search(ranges_of(), layers_of(100), measure)

    assert dict(found.best.choice.floats) == {"n37": "carries a large part of the error alone"}
    assert found.best.error == pytest.approx(0.1)
    assert found.best.float_share == pytest.approx(0.01)
    before = next(i for i, (_, floats, _) in enumerate(measure.asked) if floats == {"n37"})
    assert before < 30  # by halving: one for each method, 12 parts of 9 layers, then 9 parts of one


def test_of_a_hundred_layers_only_the_neighbours_of_useful_ones_are_tried_alone():
    measure = Additive({"n7": 0.1, "n60": 0.08}, base=1.0)

    found = search(ranges_of(), layers_of(100, share=0.001), measure)

    assert set(found.best.choice.floats) == {"n7", "n60"}
    assert len({floats for _, floats, _ in measure.asked}) < 70


def test_several_outliers_are_found_one_after_the_other():
    measure = Additive({"n5": 1.0, "n50": 0.8, "n95": 0.6}, base=0.1)

    found = search(ranges_of(), layers_of(100), measure)

    assert set(found.best.choice.floats) == {"n5", "n50", "n95"}
    assert found.steps["outliers in float"].error == pytest.approx(0.1)


@pytest.mark.parametrize("base", [0.5, 0.0], ids=["no layer is useful", "outputs are equal already"])
def test_nothing_is_left_in_float_where(base):
    found = search(ranges_of(), layers_of(20, depthwise={1, 2}, last={19}), Additive(base=base))

    assert not found.best.choice.floats
    assert (found.best.error, found.best.cost) == (base, base)


def test_depthwise_layers_go_to_float_together_where_that_pays():
    depthwise = {1, 3, 5, 7, 9, 11}
    measure = Additive({f"n{i}": 0.1 for i in depthwise}, base=0.05)

    found = search(ranges_of(), layers_of(40, share=0.02, depthwise=depthwise), measure)

    assert dict(found.best.choice.floats) == dict.fromkeys((f"n{i}" for i in sorted(depthwise)), "depthwise")
    assert found.best.float_share == pytest.approx(0.12)  # more than other layers may have


def test_the_last_layers_go_to_float_together_where_that_pays():
    last = {36, 37, 38, 39}
    measure = Additive({f"n{i}": 0.1 for i in last} | {f"n{i}": 0.01 for i in range(36)}, base=0.05)

    found = search(ranges_of(), layers_of(40, share=0.005, last=last), measure)

    assert {name for name, why in found.best.choice.floats.items() if why == "one of the last layers"} == {
        "n36", "n37", "n38", "n39"
    }  # fmt: skip


def test_of_last_layers_that_are_too_much_together_those_go_to_float_that_gain_most_for_their_work():
    shares = {"large": 0.045, "n1": 0.02, "n2": 0.01, "useless": 0.01}
    last = [Layer(name=name, mac_share=share, is_depthwise=False, is_last=True) for name, share in shares.items()]
    measure = Additive({"large": 0.2, "n1": 0.12, "n2": 0.12}, base=1.0)

    best = search(ranges_of(), [*layers_of(10), *last][::-1], measure).steps["groups in float"]

    assert dict(best.choice.floats) == dict.fromkeys(("n1", "n2"), "one of the last layers")


def test_a_method_that_only_suits_a_part_of_the_last_layers_in_float_is_found():
    """As on YOLOv5: clipping suits what is all in INT8, and no clipping what has its last layers in float."""
    shares = {"m0": 0.045, "m1": 0.02, "m2": 0.01}
    last = [Layer(name=name, mac_share=share, is_depthwise=False, is_last=True) for name, share in shares.items()]

    class Mixed(Additive):
        def error(self, choice):
            kept = len({"m1", "m2"}.intersection(choice.floats))
            of_method = {("percentile",): 1.0 - 0.1 * kept, ("minmax",): 1.3 - 0.4 * kept}
            return of_method.get(tuple(set(choice.methods.values())), 2.0)

    best = search(ranges_of("x", "y"), [*layers_of(10), *last], Mixed()).best.choice

    assert dict(best.methods) == {"x": "minmax", "y": "minmax"}
    assert set(best.floats) == {"m1", "m2"}


def test_of_three_methods_that_differ_each_is_measured_on_all_images_with_the_last_layers_in_float():
    """Where no layer is depthwise a group comes up more than once: it must not take the place of another method."""

    class Turning(Additive):
        def __call__(self, choices, images):
            return [tuple(self.on(choice, image) for image in images) for choice in choices]

        def on(self, choice, image):
            order = METHODS if image < 16 else METHODS[::-1]
            (method,) = set(choice.methods.values())
            return 0.5 + 0.01 * order.index(method) if "n9" in choice.floats else 1.0

    best = search(ranges_of(), layers_of(10, last={9}), Turning(), images=64).steps["groups in float"]

    assert dict(best.choice.methods) == {"images": "minmax"}


@pytest.mark.parametrize("depthwise", [(), (0, 4, 8, 12, 16, 20)])
def test_the_limits_hold_although_every_layer_would_help(depthwise):
    layers = layers_of(30, share=0.02, depthwise=depthwise, last={28, 29})
    measure = Additive({layer.name: 0.1 for layer in layers})

    best = search(ranges_of(), layers, measure).best.choice

    assert share(best, layers, is_depthwise=(False,)) <= FloatLimits().other
    assert share(best, layers) <= FloatLimits().total


def test_the_room_that_the_limits_leave_is_used_for_the_worst_layers():
    layers = layers_of(30, share=0.02)
    measure = Additive({layer.name: 0.1 + 0.01 * i for i, layer in enumerate(layers)})

    best = search(ranges_of(), layers, measure).best

    assert set(best.choice.floats) == {"n29", "n28"}  # 4 %; a third one would be 6 %


def test_a_layer_that_is_too_large_for_the_limits_stays_in_int8_and_smaller_ones_still_go():
    layers = [Layer(name="huge", mac_share=0.5, is_depthwise=False, is_last=False), *layers_of(10, share=0.01)]

    best = search(ranges_of(), layers, Additive({"huge": 1.0, "n3": 0.1}, base=0.01)).best

    assert set(best.choice.floats) == {"n3"}


def test_widened_limits_let_more_stay_in_float_and_keep_what_was_found():
    layers = layers_of(30, share=0.02)
    measure = Additive({layer.name: 0.1 for layer in layers})
    found = search(ranges_of(), layers, measure)

    wider = found.widened(FloatLimits(other=0.2, total=0.3))

    assert set(found.best.choice.floats) < set(wider.best.choice.floats)
    assert share(found.best.choice, layers) <= 0.05 < share(wider.best.choice, layers) <= 0.2
    assert wider.best.error < found.best.error
    assert list(wider.steps) == [*found.steps, "up to 30% in float"]


@pytest.mark.parametrize("method", METHODS)
def test_the_method_that_errs_least_is_taken_for_all(method):
    costs = {name: 0.1 if name == method else 1.0 for name in METHODS}

    found = search(ranges_of("a", "b"), layers_of(3), Additive(tensors={"a": costs, "b": costs}))

    assert dict(found.best.choice.methods) == {"a": method, "b": method}


def test_of_equally_good_methods_the_first_is_taken():
    assert set(search(ranges_of("a", "b"), layers_of(3), Additive(base=1.0)).best.choice.methods.values()) == {"mse"}


def test_each_tensor_has_the_method_that_suits_it():
    best = {"a": "mse", "b": "minmax", "c": "percentile", "d": "mse", "e": "minmax"}
    costs = {tensor: {name: 0.1 if name == its else 0.3 for name in METHODS} for tensor, its in best.items()}

    found = search(ranges_of(*best), layers_of(3), Additive(tensors=costs))

    assert dict(found.best.choice.methods) == best
    assert found.best.error == pytest.approx(0.5)


def test_a_single_tensor_with_another_method_is_kept_although_no_other_joins_it():
    costs = {name: {"mse": 0.1, "percentile": 0.5, "minmax": 0.5} for name in "abcd"}
    costs["b"] = {"mse": 0.5, "percentile": 0.1, "minmax": 0.5}

    found = search(ranges_of("a", "b", "c", "d"), layers_of(3), Additive(tensors=costs))

    assert found.best.choice.methods["b"] == "percentile"


def test_ranges_that_are_nearly_equal_are_not_tried_and_dead_tensors_do_no_harm():
    ranges = {"near": {"mse": 1.0, "percentile": 1.05, "minmax": 1.09}, "dead": dict.fromkeys(METHODS, 0.0)}
    measure = Additive(base=1.0)

    search(ranges, layers_of(2), measure)

    mixed = [methods for methods, _, _ in measure.asked if len({method for _, method in methods}) > 1]
    assert not mixed


def test_what_the_user_keeps_in_float_stays_with_its_reason_and_is_in_every_trial():
    measure = Additive({"n3": 1.0, "n9": 0.5}, base=0.1)

    found = search(ranges_of(), layers_of(20, depthwise={9}), measure, floats={"n9": "asked for", "elsewhere": "asked"})

    assert dict(found.best.choice.floats) == {
        "n9": "asked for",
        "elsewhere": "asked",
        "n3": "carries a large part of the error alone",
    }
    assert all({"n9", "elsewhere"} <= floats for _, floats, _ in measure.asked)


def test_what_the_user_keeps_in_float_counts_towards_the_limits():
    layers = layers_of(20, share=0.02)
    kept = {"n0": "asked for", "n1": "asked for", "n2": "asked for"}

    found = search(ranges_of(), layers, Additive({layer.name: 0.1 for layer in layers}), floats=kept)

    assert dict(found.best.choice.floats) == kept


def mixed():
    layers = layers_of(60, share=0.004, depthwise={3, 9, 27}, last={58, 59})
    costs = {f"t{i}": {"mse": 0.02 * (i % 3), "percentile": 0.03, "minmax": 0.01 * (i % 5)} for i in range(30)}
    measure = Additive({f"n{i}": 0.001 * (i * 37 % 60) for i in range(60)} | {"n3": 2.0}, costs, base=0.1)
    return ranges_of(*costs), layers, measure


def test_equal_inputs_give_an_equal_result():
    one, two = search(*mixed()), search(*mixed())

    assert one.best == two.best
    assert list(one.best.choice.floats.items()) == list(two.best.choice.floats.items())
    assert one.steps == two.steps


class Job:
    """Runs trials; remembers which choice ran on which image."""

    def __init__(self, measure):
        self.measure, self.ran = measure, []

    def each(self, trials, *, on_item):
        for trial in trials:
            self.ran += [(trial.choice.key, image) for image in trial.images]
            yield [(self.measure.error(trial.choice),) * 2 for _ in trial.images]


@pytest.mark.parametrize("images", [1, 4, 31, 32, 64])
def test_no_choice_is_run_twice_on_an_image(images):
    ranges, layers, measure = mixed()
    job = Job(measure)
    trials = Trials(job, on_trial=lambda: None)

    found = search(ranges, layers, trials, images=images, steady=trials.by_best)
    found.widened(FloatLimits(other=0.2, total=0.3)).widened(FloatLimits(other=0.4, total=0.5))

    assert len(set(job.ran)) == len(job.ran)
    assert {image for _, image in job.ran} == set(range(images))


def test_the_result_errs_as_it_says_no_step_makes_it_worse_and_each_float_layer_has_a_reason():
    ranges, layers, measure = mixed()

    found = search(ranges, layers, measure)

    assert found.best.error == pytest.approx(measure.error(found.best.choice))
    errors = [step.error for step in found.steps.values()]
    assert errors == sorted(errors, reverse=True)
    assert found.steps["ranges by tensor"] == found.best
    assert found.best.choice.floats["n3"]
    assert len(found.best.choice.floats) > 3
    assert all(found.best.choice.floats.values())


def test_an_accuracy_that_hardly_differs_is_not_worth_the_speed():
    last = {6, 7, 8, 9}
    measure = Additive({f"n{i}": 0.0005 for i in last}, base=1.0)  # 0.2 % less error for 4 % of the work

    found = search(ranges_of(), layers_of(10, share=0.01, last=last), measure)

    assert found.best.choice == Int8Choice(methods={"images": "mse"})


class Noisy(Additive):
    """What chance makes of the errors of each image, differently for each choice, with the same mean for all."""

    def __call__(self, choices, images):
        super().__call__(choices, images)
        return [tuple(self.error(choice) * self.factor(choice, image) for image in images) for choice in choices]

    def factor(self, choice, image):
        return random.Random(repr((sorted(choice.methods.items()), sorted(choice.floats), image))).uniform(0.9, 1.1)


def test_what_chance_makes_of_a_hundred_layers_and_tensors_changes_nothing():
    ranges = ranges_of(*(f"t{i}" for i in range(30)))

    found = search(ranges, layers_of(100, share=0.001), Noisy(base=1.0), images=64)

    assert not found.best.choice.floats
    assert len(set(found.best.choice.methods.values())) == 1


def test_what_is_far_above_chance_is_found_in_spite_of_it():
    measure = Noisy({"n7": 0.1, "n60": 0.08}, base=1.0)

    found = search(ranges_of(), layers_of(100, share=0.001), measure, images=64)

    assert set(found.best.choice.floats) == {"n7", "n60"}


@pytest.mark.parametrize(
    "is_fitting", [lambda choice: choice.floats, lambda choice: len(set(choice.methods.values())) > 1]
)
def test_a_layer_or_tensor_that_only_suits_the_images_of_the_search_is_not_confirmed(is_fitting):
    class Fitting(Additive):
        def __call__(self, choices, images):
            return [tuple(0.9 if is_fitting(c) and image < 16 else 1.0 for image in images) for c in choices]

    found = search(ranges_of("a", "b"), layers_of(2), Fitting(), images=40).best.choice

    assert not found.floats
    assert dict(found.methods) == {"a": "mse", "b": "mse"}


def test_a_single_image_is_enough_to_search_on():
    found = search(ranges_of(), layers_of(20), Additive({"n3": 1.0}, base=0.1), images=1)

    assert set(found.best.choice.floats) == {"n3"}


class Rare(Additive):
    """What one object on few images makes of the errors: nothing can be told from it."""

    def __call__(self, choices, images):
        super().__call__(choices, images)
        return [tuple(8 * self.error(choice) * self.luck(choice, image) for image in images) for choice in choices]

    def luck(self, choice, image):
        dice = random.Random(repr((sorted(choice.methods.items()), sorted(choice.floats), image)))
        return dice.uniform(0.0, 1.0) if image % 8 == 0 else 0.0


SLIGHT = {f"n{i}": 0.02 for i in range(20, 40)}  # each 1 % of the error or so


def test_what_a_rare_object_cannot_tell_the_steady_measure_can_and_the_budget_is_spent():
    layers = layers_of(60, share=0.008)
    noisy, steady = Rare(SLIGHT, base=1.0), Additive(SLIGHT, base=1.0)

    alone = search(ranges_of(), layers, noisy, images=64).best.choice
    both = search(ranges_of(), layers, noisy, images=64, steady=steady).best.choice

    assert SLIGHT.keys().isdisjoint(alone.floats)
    assert set(both.floats) <= SLIGHT.keys()
    assert 0.04 < share(both, layers) <= 0.05


def test_the_steady_measure_does_not_choose_methods():
    costs = {"mse": 0.1, "percentile": 0.2, "minmax": 0.2}
    others = {"mse": 0.2, "percentile": 0.1, "minmax": 0.2}

    found = search(ranges_of("x"), layers_of(3), Additive(tensors={"x": costs}), steady=Additive(tensors={"x": others}))

    assert dict(found.best.choice.methods) == {"x": "mse"}


def test_layers_that_surely_do_harm_in_float_stay_in_int8_although_the_steady_measure_wants_them():
    harm, good = Additive({"n3": -0.2}, base=1.0), Additive({"n3": 0.5}, base=1.0)

    found = search(ranges_of(), layers_of(10), harm, steady=good)

    assert not found.best.choice.floats


def test_what_is_widened_goes_by_the_steady_measure():
    layers = layers_of(60, share=0.008)
    noisy, steady = Rare(SLIGHT, base=1.0), Additive(SLIGHT, base=1.0)
    found = search(ranges_of(), layers, noisy, images=64, steady=steady)

    wider = found.widened(FloatLimits(other=0.1, total=0.2))

    assert {*found.best.choice.floats} < {*wider.best.choice.floats} <= SLIGHT.keys()


class ByMethod(Additive):
    """Errors of 1, and by method what is added to them on every second image and on the others."""

    def __init__(self, added):
        super().__init__()
        self.added = {**added, "mixed": (1.0, 1.0)}

    def __call__(self, choices, images):
        super().__call__(choices, images)
        return [tuple(1.0 + self.added[self.method(choice)][image % 2] for image in images) for choice in choices]

    def method(self, choice):
        first, *others = set(choice.methods.values())
        return "mixed" if others else first


def tied(added, *, images=64):
    found = search(ranges_of("a", "b"), layers_of(3), ByMethod(added), images=images)
    return [next(iter(one.choice.methods.values())) for one in found.tied], found


CLOSE = {"mse": (0.31, -0.29), "percentile": (0.0, 0.0), "minmax": (0.305, -0.295)}
# 64 differences of 0.31 and -0.29: their mean of 0.01 has a standard error of 0.038.


def test_methods_that_chance_may_have_put_in_order_are_tied_the_smallest_error_first():
    methods, found = tied(CLOSE)

    assert methods == ["percentile", "minmax", "mse"]
    assert found.tied[0] is found.best


@pytest.mark.parametrize(
    ("added", "images", "expected"),
    [
        # 64 differences of 0.36 and -0.24: their mean of 0.06 has a standard error of 0.038.
        ({"mse": (0.36, -0.24), "percentile": (0.0, 0.0), "minmax": (0.9, 0.9)}, 64, "percentile"),
        ({"mse": (0.1, 0.1), "percentile": (0.0, 0.0), "minmax": (0.2, 0.2)}, 1, "percentile"),
        ({"mse": (0.3, -0.3), "percentile": (0.3, -0.3), "minmax": (0.9, 0.9)}, 64, "mse"),
    ],
    ids=["worse by more than a standard error", "a single image", "nothing that it changes"],
)
def test_nothing_is_tied(added, images, expected):
    assert tied(added, images=images)[0] == [expected]


@pytest.mark.parametrize(
    ("agreements", "winner"),
    [((0.9, 0.8, 0.9), "percentile"), ((0.9, 0.8, 0.95), "mse"), ((0.0, 0.0, 0.0), "percentile")],
)
def test_agreement_settles_a_tie_and_of_equals_the_smallest_error(agreements, winner):
    by_method = dict(zip(("percentile", "minmax", "mse"), agreements, strict=True))
    methods, found = tied(CLOSE)
    settled = found.settled_by(lambda choice: by_method[choice.methods["a"]])

    assert settled.best == found.tied[methods.index(winner)]
    assert settled.tied == (settled.best,)
    added = [] if winner == "percentile" else ["method by agreement"]
    assert list(settled.steps) == [*found.steps, *added]
    assert settled.steps[list(settled.steps)[-1]] == settled.best


def test_where_nothing_is_tied_nobody_is_asked():
    _, found = tied({"mse": (0.5, 0.5), "percentile": (0.0, 0.0), "minmax": (0.9, 0.9)})

    assert found.settled_by(lambda choice: pytest.fail("asked")) is found


def test_what_is_tied_keeps_the_layers_that_were_found_in_float():
    class Mixed(ByMethod):
        def __call__(self, choices, images):
            pairs = zip(super().__call__(choices, images), choices, strict=True)
            return [tuple(error + ("n3" not in choice.floats) for error in errors) for errors, choice in pairs]

    found = search(ranges_of("a"), layers_of(20), Mixed(CLOSE), images=64)

    assert [set(one.choice.floats) for one in found.tied] == [{"n3"}] * 3


def test_a_method_that_suits_better_what_has_its_layers_in_float_is_taken_at_last():
    class Later(Additive):
        def error(self, choice):
            kept = len({"n3", "n5"}.intersection(choice.floats))
            of_method = {("mse",): 0.1 + 0.05 * kept, ("percentile",): 0.15, ("minmax",): 0.5}
            return 0.8 - 0.1 * kept + of_method.get(tuple(set(choice.methods.values())), 0.5)

    found = search(ranges_of("x", "y"), layers_of(60, share=0.004), Later())

    assert set(found.steps["groups in float"].choice.methods.values()) == {"mse"}
    assert dict(found.best.choice.methods) == {"x": "percentile", "y": "percentile"}
    assert {*found.best.choice.floats} == {"n3", "n5"}
