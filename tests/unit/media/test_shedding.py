"""What may be ordered left out."""

import pytest

from edge.media.shedding import Shedding


@pytest.mark.parametrize("max_fps", [0.0, -1.0])
def test_a_limit_that_would_let_nothing_through_is_refused_where_it_is_made(max_fps):
    with pytest.raises(ValueError, match="max_fps is positive"):
        Shedding(max_fps=max_fps)
