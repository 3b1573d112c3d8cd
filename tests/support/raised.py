"""The typed error that a call has to raise."""

import pytest

from edge.errors import DeployError


def error_of(function, *arguments, **options):
    with pytest.raises(DeployError) as caught:
        function(*arguments, **options)
    return caught.value


def code_of(function, *arguments, **options):
    return error_of(function, *arguments, **options).code
