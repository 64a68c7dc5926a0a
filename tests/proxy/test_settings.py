import pytest

from kvgym.errors import ConfigError
from kvgym.proxy.command_line import make_settings, reloaded

URL = "http://127.0.0.1:1"


def test_settings__file_then_options_then_changes(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_text(f"workers: [{URL}]\nrouting: lbgr\nretries: 1\n")
    found = make_settings(path, {"routing": "blend", "log": None}, ["retries=4", "options.x=1"])
    assert (found.routing, found.retries, found.options, found.workers) == ("blend", 4, {"x": 1}, (URL,))
    path.write_text("workers: [http://a:1, http://b:2]\n")
    assert reloaded(path, found) == ["http://a:1", "http://b:2"]
    assert reloaded(None, found) == [URL]
    path.write_text("workers: []\n")
    with pytest.raises(ConfigError, match="names no workers"):
        reloaded(path, found)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"workers": ["127.0.0.1:1"]}, "a worker must be http://host:port"),
        ({"workers": [URL, URL]}, "is named twice"),
        ({"workers": []}, "name at least one server"),
        ({"listen": "8000"}, "listen must be HOST:PORT"),
        ({"listen": "x:99999"}, "listen must be HOST:PORT"),
        ({"retries": -1}, "retries must be"),
        ({"log_content": "text"}, "log_content must be one of hashes, ids"),
        ({"tls_key": "k.pem"}, "belong together"),
        ({"api_key_variable": "KVGYM_NO_SUCH"}, "the environment has no KVGYM_NO_SUCH"),
        ({"routin": "x"}, "routin"),
    ],
)
def test_mistakes__are_named(changes, message):
    with pytest.raises(ConfigError, match=message):
        make_settings(None, {"workers": [URL], **changes}, [])
