import everleaf
import pytest


@pytest.fixture(params=["buffered", "strict"])
def store(request, tmp_path):
    with everleaf.open(tmp_path / "store", durability=request.param, domain="process") as opened:
        yield opened
