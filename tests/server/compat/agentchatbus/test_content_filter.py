"""The content filter, as agents meet it over REST and as a tool."""

from pathlib import Path

from server.compat.agentchatbus.service import find_secret
from tests.cases import each_case
from tests.server.compat.agentchatbus.bus_agent import BusAgent, contents, detail
from tests.server.compat.agentkit.conversations_api import post
from tests.server.rest.rest_client import RestClient, open_rest_client

# Joined from two parts, so that no scanner takes this file for a leak.
SECRETS = {
    "AWS Access Key ID": "AKIA" + "IOSFODNN7EXAMPLE123",
    "AWS Temporary Access Key": "ASIA" + "QNZAKIIOSFODNN7E",
    "JWT Token": "eyJ" + "hbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJ" + "zdWIiOiIxMjM0NTY3ODkwIn0",
    "GitHub Personal Access Token": "ghp_" + "ABCDEFGHIJKLMNOPQRSTUVWXYZ123456abcd",
    "GitHub OAuth Token": "gho_" + "ABCDEFGHIJKLMNOPQRSTUVWXYZ123456abcd",
    "GitHub App Token": "ghs_" + "ABCDEFGHIJKLMNOPQRSTUVWXYZ123456abcd",
    "Private Key": "-----BEGIN " + "RSA PRIVATE KEY-----",
    "OpenAI API Key": "sk-" + "abcdefghij0123456789T3BlbkFJabcdefghij0123456789",
    "Slack Token": "xoxb-" + "123456789-ABCDEFGHIJ",
    "Google API Key": "AIza" + "SyA-1234567890abcdefghijklmnopqrstu",
    "Azure Storage Key": "AZURE_STORAGE_KEY=" + "A1b2" * 10 + "C3d=",
}


@each_case(("pattern", "secret"), SECRETS.items())
async def test_message_with_a_secret_is_rejected_and_not_stored(api: RestClient, pattern: str, secret: str) -> None:
    agent = await BusAgent.register(api)
    thread = (await agent.create_thread())["id"]

    response = await agent.try_post(thread, f"Use {secret} for the deployment.")

    assert response.status == 400
    assert detail(response) == {"error": "Content blocked by filter", "pattern": pattern}
    assert secret.encode() not in response.body
    assert await contents(api, thread) == []


@each_case("field", ["topic", "system_prompt"])
async def test_thread_with_a_secret_is_rejected(api: RestClient, field: str) -> None:
    agent = await BusAgent.register(api)
    secret = SECRETS["AWS Access Key ID"]
    body = {"topic": "Plans", "creator_agent_id": agent.id, field: f"Use {secret}."}

    response = await post(api, "/api/threads", body, X_Agent_Token=agent.token)

    assert response.status == 400
    assert detail(response) == {"error": f"{field} blocked by content filter", "pattern": "AWS Access Key ID"}
    assert (await api.get("/api/threads")).json()["total"] == 0


async def test_rejected_message_does_not_consume_its_reply_token(api: RestClient) -> None:
    agent = await BusAgent.register(api)
    thread = await agent.create_thread()

    await agent.try_post(thread["id"], SECRETS["Slack Token"], reply_token=thread["reply_token"])

    await agent.post(thread["id"], "without it", reply_token=thread["reply_token"])


async def test_filter_can_be_switched_off(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, bus_content_filter=False) as api:
        agent = await BusAgent.register(api)
        thread = (await agent.create_thread())["id"]

        await agent.post(thread, SECRETS["Private Key"])

        assert await contents(api, thread) == [SECRETS["Private Key"]]


@each_case(
    "text",
    [
        "The refactor looks good, great work!",
        "We should rotate the token every 30 days and store it in a secrets manager.",
        "const token = process.env.API_TOKEN; // read from the environment",
        "AKIA is the prefix of access keys, ghp_ that of tokens, and sk- that of API keys.",
        "-----BEGIN PUBLIC KEY-----",
        "AZURE_STORAGE_KEY=$(cat key)",
    ],
)
def test_text_about_secrets_is_not_a_secret(text: str) -> None:
    assert find_secret(text) is None


@each_case("unit", ["eyJ", "azure", "azure=", "sk-", "T3BlbkFJ", "xoxb", "a" * 20, "-----BEGIN "])
def test_hostile_text_is_scanned_without_backtracking(unit: str) -> None:
    """A pattern that tried every position of a run to its end would take hours."""
    assert find_secret(unit * (2_000_000 // len(unit))) is None
