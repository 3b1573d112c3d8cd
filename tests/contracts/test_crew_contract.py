"""What `edge.quantize.crew.Crew` promises, of this process and of a cluster."""

import cv2
import pytest

from edge.errors import DatasetError
from edge.quantize.cluster import Likeness, cluster_at, workers_here
from edge.quantize.crew import Here
from tests.support.clips import draw
from tests.support.crew_work import Colours, images_in
from tests.support.dask_cluster import DaskCluster


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("crew")
    draw(folder / "images", 37)
    return images_in(folder / "images")


@pytest.fixture(scope="module")
def expected(images):
    return [(one.path.name, cv2.imread(str(one.path))[0, 0, ::-1].tolist()) for one in images]


@pytest.fixture(scope="module", params=["here", "processes", "cluster"])
def crew(request, tmp_path_factory):
    if request.param == "here":
        yield Here()
    elif request.param == "processes":
        with workers_here(2, Likeness(())) as made:
            yield made
    else:
        cluster = DaskCluster(tmp_path_factory.mktemp("dask"))
        try:
            cluster.start_worker()
            cluster.start_worker(threads=3)
            with cluster_at(cluster.address, Likeness(())) as made:
                yield made
        finally:
            cluster.close()


@pytest.mark.parametrize("work", [Colours(), Colours(rows=5), Colours(is_small=True)], ids=["one", "rows", "small"])
def test_all_is_found_in_the_order_of_the_items_and_each_item_is_told_of_once(crew, images, expected, work):
    steps = []
    with crew.take_on(work) as job:
        found = list(job.each(images, on_item=lambda: steps.append(1)))

        assert found == expected
        assert len(steps) == len(images)
        assert job.engine == "eyes 1.0"


def test_a_job_may_have_many_rounds_and_jobs_follow_each_other(crew, images, expected):
    for size in (1, 3, 11):
        with crew.take_on(Colours()) as job:
            for first in range(0, len(images), size):
                part = slice(first, first + size)
                assert list(job.each(images[part], on_item=lambda: None)) == expected[part]


def test_nothing_is_found_of_no_items(crew):
    with crew.take_on(Colours()) as job:
        assert list(job.each([], on_item=lambda: None)) == []


def test_the_error_of_the_first_bad_item_comes_behind_what_is_in_front_of_it(crew, images, expected):
    names, found = [one.path.name for one in images], []
    with crew.take_on(Colours(bad=(names[20], names[34]))) as job, pytest.raises(DatasetError) as caught:
        found.extend(job.each(images, on_item=lambda: None))

    assert str(caught.value) == f"{names[20]}: is bad; mend it"
    assert (caught.value.problem, caught.value.hint) == (f"{names[20]}: is bad", "mend it")
    assert found == expected[: len(found)]
    with crew.take_on(Colours()) as job:
        assert list(job.each(images, on_item=lambda: None)) == expected


def test_a_job_may_be_left_in_the_middle(crew, images, expected):
    with crew.take_on(Colours()) as job:
        assert next(iter(job.each(images, on_item=lambda: None))) == expected[0]
    with crew.take_on(Colours()) as job:
        assert list(job.each(images, on_item=lambda: None)) == expected


def test_an_image_that_is_no_image_is_named_as_it_was_given(crew, images, tmp_path):
    (tmp_path / "0.png").write_bytes(b"nothing")
    with crew.take_on(Colours()) as job, pytest.raises(DatasetError, match=r"0\.png: expected an image, got 7 bytes"):
        list(job.each(images_in(tmp_path), on_item=lambda: None))
