import pytest

from tests.api.serving import Serving


@pytest.fixture
def server():
    with Serving() as running:
        yield running
