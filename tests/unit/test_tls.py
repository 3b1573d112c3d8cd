"""What certificates are checked by is alike under each Python; what it takes and refuses is shown with real servers."""

import ssl
from pathlib import Path

import pytest

from edge.tls import client_context

EDGE = Path(__file__).parents[2] / "edge"


@pytest.mark.parametrize("has_system_cas", [True, False])
def test_an_authority_without_the_newest_extensions_counts_under_each_python(has_system_cas):
    context = client_context(has_system_cas=has_system_cas)

    assert not context.verify_flags & ssl.VerifyFlags.VERIFY_X509_STRICT
    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert bool(context.cert_store_stats()["x509_ca"]) <= has_system_cas


def test_all_contexts_are_made_in_one_place():
    makers = [path.relative_to(EDGE).as_posix() for path in EDGE.rglob("*.py") if "SSLContext(" in path.read_text()]
    defaults = [path for path in EDGE.rglob("*.py") if "create_default_context" in path.read_text()]

    assert makers == ["tls.py"]
    assert defaults == []
