"""Secrets out, look-alikes in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_triage.redact import Redactor, redact

ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


@given(st.text(ALPHABET, min_size=20, max_size=40))
def test_no_token_gets_through(secret: str) -> None:
    for text in (
        f"hf_{secret}", f"sk-{secret}", f"Authorization: Bearer {secret}", f"--api-key {secret} --port 1",
        f"'api_key': '{secret}'", f'"hf_token": "{secret}"', f"AWS_SECRET_ACCESS_KEY={secret}",
        f"https://user:{secret}@hub.example/x", f"'api_key': ['{secret}']", f"--hf-token={secret}",
    ):  # fmt: skip
        assert secret not in redact(text)


SECRETS = st.text(ALPHABET, min_size=20, max_size=40).filter(lambda text: not text.isdecimal())

# `§` stands for the secret. Each line is one way in which a secret gets into a log, a command or a variable.
PLACES = (
    "hf_§", "file-hf_§.log", "api_org_§", "sk-§", "sk-ant-api03-§", "nvapi-§", "ghp_§", "github_pat_§", "glpat-§",
    "xoxb-§", "AIzaSyAAAAAAAAAA§", "ya29.§", "gsk_§", "dckr_pat_§", "pypi-§", "npm_§", "eyJ§.§.§",
    "Authorization: Bearer §", "authorization: basic §==", "Authorization: Token §", "'Authorization': 'Bearer §'", "authorization=§",
    "(b'authorization', b'Bearer §')", "(b'x-api-key', b'§')", "X-API-Key: §", '-H "Authorization: Bearer §"',
    "Cookie: session=§; id=§", "Set-Cookie: session=§; Path=/", "(b'cookie', b'session=§')",
    "--api-key § --port 1", "--api-key=§", "--api-key § x§ --port 1", "--api-key § x§", "--api_key '§'", "--hf-token=§", "--token §",
    "--api-key=§,x§ --port 1", "SOME_API_KEY=§,x§", '{"log":"vllm serve m --api-key § x§\\n","stream":"stderr"}',
    "--proxy-password §", "--ssl-keyfile-password §", '"--api-key", "§", "--port"', "['--hf-token', '§', '--port']",
    "'api_key': '§'", "'api_key': ['§', 'x§']", "api_key=['§', 'x§'], port=1", '"hf_token": "§"', '{\\"api_key\\": \\"§\\"}',
    '{"name": "HF_TOKEN", "value": "§"}', "AWS_SECRET_ACCESS_KEY=§", "aws_session_token = §", "-e HF_TOKEN=§ x", "VLLM_SOME_KEY=§",
    "VLLM_SOME_TOKEN=§", "DB_PASSWORD='a §'", 'DB_PASSWORD="§, §"', "PGPASSWORD=§", "MYSQL_PWD=§", "DB_PASS=§", "CLIENT_SECRET=§", "client_secret: §",
    "private_key: §", "AccountKey=§;EndpointSuffix=x", "HF_TOKEN:      §",
    "https://user:§@hub.example/x", "https://user:a@§@hub.example/x", "redis://:§@host:1/0", "https://§@hub.example/x", "http_proxy=http://u:§@proxy:3128",
    "https://cdn.example/x?Policy=§&Signature=§&Key-Pair-Id=§", "https://b.example/x?sig=§", "https://b.example/x?a=1&X-Amz-Signature=§",
    "https://hooks.slack.com/services/T0/B0/§", "curl -u bob:§ http://x", "curl --proxy-user bob:§ http://x", "machine hub.example login bob password §",
    "-----BEGIN PRIVATE KEY-----\\n§\\n-----END PRIVATE KEY-----",
    "KEY=§", "TOKEN=§", "PASS=§", "AUTH=§", "CREDENTIALS=§", "export KEY=§", "HF_TOKENX=§", "MY_TOKEN_2=§", "HF_TOKEN2=§", "DB_PASSWD=§", "DB_PASSWORD_PROD=§",
    "API_KEY_2=§", "OPENAI_APIKEY=§", "MY_KEY_1=§", "SECRET_VALUE=§", "hf_token_2=§", "api_keys=['§']", "api_key_2: §", "sessionToken: §", '"refreshToken": "§"',
    '"clientSecret":"§"', '"secretAccessKey": "§"', "ENV HF_TOKEN §", "ENV HF_TOKEN=§", "setenv HF_TOKEN §", "('HF_TOKEN', '§')", '["HF_TOKEN", "§"]',
    "(b'HF_TOKEN', b'§')", "{'HF_TOKEN' : '§'}", "HF_TOKEN => §", "HF_TOKEN := §", "HF_TOKEN -> §", "HF_TOKEN == '§'", ':HF_TOKEN=>"§"',
    '{"value": "§", "name": "HF_TOKEN"}', "{value: §, name: HF_TOKEN}", '{"Key":"HF_TOKEN","Value":"§"}', '{"Name":"API_KEY","Value":"§"}',
    "- {name: HF_TOKEN, value: §}", '- {name: "HF_TOKEN", value: "§"}', "command: [vllm, serve, --api-key, §, --port]", 'args: ["--api-key","§"]',
    "args: ['--api-key=§']", '"--api-key" "§"', "'--api-key' '§' '--port'", "--api-key	§", "--api-key  §", '--api-key="§"', "--api-key='§ x'", '--api-key \\"§\\"',
    "--api_key=§", "-api-key §", "HF_TOKEN     │ §", "│ HF_TOKEN │ § │", "| HF_TOKEN | § |", "Namespace(host=None, api_key='§', hf_token=None)",
    "Namespace(api_key=['§', '§x'], port=1)", "non-default args: {'model': 'm', 'api_key': ['§']}", '{"msg":"api_key=§"}', '{"log":"Namespace(api_key=\'§\')\\n"}',
    '{\\"api_key\\":\\"§\\"}', '{\\\\\\"api_key\\\\\\":\\\\\\"§\\\\\\"}', "hf_token=SecretStr§", "Incorrect API key provided: §. You can find", "Invalid API key: §",
    "Bearer §", "bearer: §", '"authorization":["Bearer §"]', '{"Authorization": ["Bearer §"]}', "Authorization=Basic §=", "Authorization: ApiKey §",
    "Proxy-Authorization: Basic §", "X-Auth-Token: §", "X-Amz-Security-Token: §", "Ocp-Apim-Subscription-Key: §", "x-goog-api-key: §", "PRIVATE-TOKEN: §",
    "-H 'api-key: §'", "https://h.example/x?token=§", "https://h.example/x?a=1&api_key=§&b=2", "https://h.example/x?access_token=§#frag",
    "https://h.example/x?hf_token=§", "https://h.example/x?password=§", "https://h.example/x;token=§", "https://h.example/x?jwt=§", "https://user:§@h.example",
    "postgres://u:§@h/db", "amqp://u:p§@h", "mongodb+srv://u:§@h", "https://oauth2:§@gitlab.com/x.git", "https://x-access-token:§@github.com/x.git",
    "git clone https://§@github.com/o/r", "Server=h;User Id=u;Password=§;Database=d", "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=§/§==;EndpointSuffix=x",
    "SharedAccessKey=§", "SharedAccessSignature sr=x&sig=§&se=1", "BlobEndpoint=https://a/?sv=1&sig=§", "wandb login §", "huggingface-cli login --token §",
    "hf auth login --token §", "docker login -u u -p § r.example", "docker login --password=§", "sshpass -p § ssh h", "sk_live_§", "rk_live_§", "whsec_§", "xapp-1-§",
    "SG.§.§", "hvs.§", "tskey-auth-§", "r8_§", "pplx-§", "lsv2_pt_§", "pk-lf-§", "glrt-§", "GOCSPX-§", "1//0§§", "ATATT3x§", "AGE-SECRET-KEY-1§", "NRAK-§", "eyJ§.eyJ§.",
    "eyJhbGciOiJub25lIn0.eyJ§", "eyJ§..§.§.§", '-----BEGIN PRIVATE KEY-----\\\\n§\\\\n-----END PRIVATE KEY-----',
    "-----BEGIN OPENSSH PRIVATE KEY----- § -----END OPENSSH PRIVATE KEY-----", '"private_key": "-----BEGIN RSA PRIVATE KEY-----\\n§\\n',
    '-----BEGIN PGP PRIVATE KEY BLOCK-----\\n§\\n-----END', 'private_key = "§"', "passwd: §", "credential: §", "secret = §", '"secret":"§"', "SECRET: §", 'HF_TOKEN="§',
    "HF_TOKEN='§", 'HF_TOKEN=\\"§\\"', "HF_TOKEN=\\'§\\'", "HF_TOKEN=%§", "HF_TOKEN= §", "HF_TOKEN:§", 'hf_token:"§"', "hf_token=b'§'", "hf_token=r'§'", "hf_token=u'§'",
    'hf_token=f"§"', "HF_TOKEN=$§", "API_KEY=${X:-§}", "HF_TOKEN=None§", "token=hf_x§", "env: HF_TOKEN=§", 'env="HF_TOKEN=§"', '"Env":["PATH=/x","HF_TOKEN=§"]',
    '"Env":["PATH=/x","HF_TOKENX=§"]', '"KEY=§",', "docker run -e HF_TOKEN=§ -e X=1", "docker run --env HF_TOKEN=§", "docker run --env=HF_TOKEN=§", '--env "HF_TOKEN=§"',
    "HF_TOKEN=§ vllm serve m", "sudo HF_TOKEN=§ vllm", "+ HF_TOKEN=§", "$ export HF_TOKEN=§; vllm", "set HF_TOKEN=§", '$env:HF_TOKEN="§"', "environ({'HF_TOKEN': '§'})",
    "os.environ['HF_TOKEN'] = '§'", 'os.environ["HF_TOKEN"]="§"', 'os.environ.setdefault("HF_TOKEN", "§")', 'os.environ["MY_TOKEN_2"]="§"', 'login(token="§")',
    'from_pretrained("x", token=\'§\')', "AuthenticationError(api_key=§)", "ＨＦ_TOKEN=§", "Hf_Token=§", "HF-TOKEN=§", "hf.token=§", "hf token: §", "API Key: §",
    "Api-Key: §", "api key=§", "Secret Key: §", "Access token: §", "<password>§</password>", "<api_key>§</api_key>", 'password: "a, §"', "password: a§,b", "PASSWORD=a:§",
    "DB_PASSWORD=§&x", "DB_PASSWORD=(§)", "DB_PASSWORD=[§]", "DB_PASSWORD=<§>", "DB_PASSWORD=}§", "DB_PASSWORD=#§", "DB_PASSWORD=,§", "DB_PASSWORD=;§",
    'DB_PASSWORD=x"§"', 'DB_PASSWORD="x\\"§"', "'password': 'x\\'§'", '"password": "x\\"§"', "AWS_SECRET_ACCESS_KEY=§/§+§", "aws_secret_access_key: §",
    "aws_secret_access_key = §", "AWS_SESSION_TOKEN=§", "LITELLM_MASTER_KEY=§", "VLLM_API_KEY=§", "NGC_API_KEY=§", "HUGGING_FACE_HUB_TOKEN=§",
    "HUGGINGFACEHUB_API_TOKEN=§", "HF_TOKEN_WRITE=§", "SLACK_WEBHOOK=https://hooks.slack.com/services/T00/B00/§", "https://discord.com/api/webhooks/123/§",
    "https://x.webhook.office.com/webhookb2/§", "MYSQL_ROOT_PASSWORD=§", "REDIS_PASS=§", "BASIC_AUTH=u:§", "VAULT_TOKEN=§", "SECRET_KEY_BASE=§", "ENCRYPTION_KEY=§",
    "JWT_SECRET=§", "SIGNING_KEY=§",
    "api_key=“§”", "“api_key”: “§”", "‘hf_token’: ‘§’", "—api-key § —port 1", "--api–key §", "Bearer\u00a0§", "Authorization:\u00a0Bearer\u202f§",
    "api_key\u200b=§", "api_key&quot;: &quot;§&quot;", "api-key&#58; §", "{&amp;quot;hf_token&amp;quot;: &amp;quot;§&amp;quot;}", "setx HF_TOKEN §",
    "https://a.b/c?d=1\\u0026sig=§", "\\u0022api_key\\u0022:\\u0022§\\u0022",
)  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
@given(secret=SECRETS)
def test_a_secret_gets_through_nowhere(place: str, secret: str) -> None:
    shown = redact(f"INFO 12-01 10:00:00 [x.py:1] {place.replace('§', secret)}")

    assert secret not in shown
    assert redact(shown) == shown


@given(SECRETS)
def test_a_secret_on_another_line_than_its_name_gets_through_nowhere(secret: str) -> None:
    rows = [
        "-----BEGIN RSA PRIVATE KEY-----", secret, f"INFO 12-01 {secret}", "-----END RSA PRIVATE KEY-----", "after the key",
        "- name: HF_TOKEN", f"  value: {secret}", '"name": "MY_API_KEY",', f'"value": "{secret}"', "- --api-key", f"- {secret}",
        "- --port", "- 80", '"--hf-token",', f'"{secret}",', "vllm serve m --api-key \\", f"  {secret} \\", "  --port 1", "last",
    ]  # fmt: skip
    redactor = Redactor()
    shown = [redactor(row) for row in rows]

    assert not any(secret in row for row in shown)
    assert shown[4] == "after the key"
    assert shown[11:13] == ["- --port", "- 80"]
    assert shown[17:] == ["  --port 1", "last"]


@given(SECRETS)
def test_a_secret_in_a_block_of_lines_gets_through_nowhere(secret: str) -> None:
    rows = ["env:", "- name: HF_TOKEN", "  value: |-", f"    {secret}", "- name: X", "  value: y",
            "stringData:", "  password: >", f"    {secret}", "", f"    x{secret}", "kind: Secret"]  # fmt: skip
    redactor = Redactor()
    shown = [redactor(row) for row in rows]

    assert not any(secret in row for row in shown)
    assert [row for row in shown if "redacted" not in row] == [
        row for row in rows if secret not in row
    ]


@given(SECRETS)
def test_variables_and_words_of_proc_are_apart(secret: str) -> None:
    environ = (
        f"PATH=/bin\0HF_TOKEN={secret} {secret}\0KEY={secret}\0MY_TOKEN_2={secret}\0HOME=/root\0"
    )
    command = f"vllm\0serve\0org/model\0--api-key\0{secret}\0--port\08000\0"

    assert redact(environ) == (
        "PATH=/bin\0HF_TOKEN=[redacted]\0KEY=[redacted]\0MY_TOKEN_2=[redacted]\0HOME=/root\0"
    )
    assert redact(command) == "vllm\0serve\0org/model\0--api-key\0[redacted]\0--port\08000\0"


def test_a_key_without_an_end_does_not_hide_the_rest() -> None:
    redactor = Redactor()
    shown = [redactor(row) for row in ("-----BEGIN PRIVATE KEY-----", *["x"] * 400, "seen again")]

    assert shown[-2:] == ["[redacted]", "seen again"]


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens=128, tokenizer='meta-llama/Llama-3', num_tokens: 5",
        "chatcmpl-5c1f941a95c97033f0ddbc21bafbf6c4",
        "commit 157ae4706f3c9e2a",
        "api_key=None",
        "Avg prompt throughput: 13.0 tokens/s",
        "you do not have a token; log in",
        "HF_TOKEN:  <set to the key 'token' in secret 'hf'>  Optional: false",
        "bos_token='<s>', eos_token=\"</s>\"",
        "--hf-token --port 80",
        "one of 'int8_per_token', 'nvfp4_per_token', 'fp8'",
        "---------------Inter-token Latency----------------",
        "usage: vllm serve ['--api-key', '--hf-token', '--port']",
        "-e HF_TOKEN=$HF_TOKEN -p 80",
        "docker run -u 1000:1000 --user 0:0 x",
        "Unexpected token: '}'",
        "secret 'hf' not found",
        "cache_key: 1f2e3d4c5b6a, forward_pass: 3.2 ms",
        "ssh://git@host/x git@github.com:a/b https://huggingface.co/org/name/resolve/main/config.json",
        "import vllm.hf_transformers_patch from hf_overrides",
        "def load(token: str | None = None, api_key=self.api_key)",
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B at 3f2a1b0c9d8e7f6a5b4c3d2e1f0a9b8c7d6e5f4a",
        "Average latency per output token: 0.31 s",
        'curl -H "Authorization: Bearer $VLLM_API_KEY" http://localhost:8000/v1/models',
        "HF_TOKEN_PATH=/root/.cache/huggingface/token VLLM_API_KEY_FILE=/run/secrets/key",
        "TIKTOKEN_ENCODINGS_BASE=/data/encodings TOKENIZERS_PARALLELISM=false VLLM_MAX_TOKENS_PER_EXPERT_FUSED_MOE=512",
        "PWD=/home/vllm OLDPWD=/root AUTHOR=someone KEYBOARD=us",
        'pad_token=\'[PAD]\', "mask_token": "[MASK]"',
        "Each item should be in the form KEY=VALUE",
        "'HF_TOKEN', 'VLLM_API_KEY', 'PATH'",
        "login(token=token, api_key=settings.api_key)",
        "by passing `token=<your_token>`",
        "--allow-credentials --image-token-id 32000 --long-prefill-token-threshold 4",
        "argument --api-key: expected at least one argument; --hf-token is required",
        "dict_keys(['LlamaForCausalLM']) weight_key: model.layers.0.weight",
        "  [--api-key API_KEY] [--hf-token HF_TOKEN]",
        "16-token kernel blocks, 8-token prompt",
    ],
)
def test_look_alikes_stay(text: str) -> None:
    assert redact(text) == text


LOOK_ALIKES = (
    st.from_regex(r"[0-9a-f]{40}", fullmatch=True),
    st.from_regex(r"sha256:[0-9a-f]{64}", fullmatch=True),
    st.from_regex(r"(?:chatcmpl|cmpl|embd)-[0-9a-f]{32}", fullmatch=True),
    st.uuids().map(str),
    st.from_regex(r"GPU-[0-9a-f]{8}-[0-9a-f]{4}", fullmatch=True),
    st.from_regex(r"[A-Za-z][A-Za-z0-9]{2,15}/[A-Z][a-z]{2,10}-[0-9]{1,3}B-Instruct", fullmatch=True),
    st.from_regex(r"--tokenizer [a-z]{3,10}/[a-z]{3,10}", fullmatch=True),
    st.integers(1, 10**6).map(lambda count: f"max_tokens={count}, num_tokens: {count}, --max-num-batched-tokens {count}"),
    st.integers(1, 65535).map(lambda port: f"--port {port} http://10.0.0.1:{port}/v1"),
    st.integers(0, 10**5).map(lambda block: f"block_ids=[{block}], slot {block}, kv_cache_key={block}"),
)  # fmt: skip


@given(st.lists(st.one_of(*LOOK_ALIKES), min_size=1, max_size=5))
def test_generated_look_alikes_stay(words: list[str]) -> None:
    text = f"INFO 12-01 10:00:00 [x.py:1] token {' '.join(words)} key"

    assert redact(text) == text


def test_the_name_of_what_held_it_stays() -> None:
    assert redact("--api-key abc123xyz --port 80") == "--api-key [redacted] --port 80"
    assert redact("vllm serve --api-key abc123xyz meta-llama/Llama-3 --port 80") == (
        "vllm serve --api-key [redacted] meta-llama/Llama-3 --port 80"
    )
    assert redact("--api-key one --api-key two") == "--api-key [redacted] --api-key [redacted]"


def test_quotes_and_entities_of_a_text_without_secret_stay() -> None:
    text = "“the key” of &quot;a&quot; is — as ever — \u00a0missing: max_tokens=10"

    assert redact(text) == text


def test_entities_in_entities_without_end_are_harmless() -> None:
    text = "key &" + "amp;" * 200_000

    assert redact(text) == text
