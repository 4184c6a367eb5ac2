"""Every sample is read as the golden file of its format says."""

import json

from tests.cases import each_case
from tests.sources.importers.format_samples import SAMPLES
from tests.sources.importers.golden import golden_file, sample_events


@each_case("name", SAMPLES)
def test_sample_is_read_as_its_golden_file_says(name: str) -> None:
    golden = json.loads(golden_file(SAMPLES[name][0]).read_text())

    assert sample_events(name) == golden[name]
