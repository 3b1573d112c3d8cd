"""What certificates are checked by is alike under each Python; what it takes and refuses is shown with real servers."""

import ssl
from pathlib import Path

import pytest

from edge.tls import client_context
from tests.support.manifests import make_certificates

EDGE = Path(__file__).parents[2] / "edge"


@pytest.mark.parametrize("has_system_cas", [True, False])
def test_an_authority_without_the_newest_extensions_counts_under_each_python(has_system_cas):
    context = client_context(has_system_cas=has_system_cas)

    assert not context.verify_flags & ssl.VerifyFlags.VERIFY_X509_STRICT
    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(("has_system_cas", "known"), [(True, 1), (False, 0)])
def test_the_systems_authorities_count_where_they_are_asked_for(has_system_cas, known, tmp_path, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(make_certificates(tmp_path).ca))

    assert client_context(has_system_cas=has_system_cas).cert_store_stats()["x509_ca"] == known


def test_all_contexts_are_made_in_one_place():
    makers = [path.relative_to(EDGE).as_posix() for path in EDGE.rglob("*.py") if "SSLContext(" in path.read_text()]
    defaults = [path for path in EDGE.rglob("*.py") if "create_default_context" in path.read_text()]

    assert makers == ["tls.py"]
    assert defaults == []
