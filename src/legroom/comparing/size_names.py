"""Names that people give to what memory depends on."""

from __future__ import annotations

import re

# whole words of a name, in any order around them: replay_buffer_size, numEnvs, --num-steps
_SIZES = re.compile(
    r"(batch|buffer|memory|replay|capacity|(^|_)(n|num)_?(env|actor|worker|agent|process|cpu|thread|gpu)"
    r"|(^|_)(envs|actors|workers|agents|processes|cpus|threads)($|_)"
    r"|n_?steps?|num_?steps?|steps_per|rollout|horizon|unroll|trajector|seq(uence)?_?len|context|hidden|units|layers?"
    r"|width|channels?|filters?|embed|features|latent|d_model|heads|blocks?($|_)|vocab|net_?arch|fc\d|dim(s|ension|$|_)"
    r"|frame_?stack|num_?frames|stack|image|resolution|resize|shape|height|size|max_?len|obs_?(size|shape)|dtype"
    r"|precision|fp16|bf16|amp($|_)|accum|n_?step|update_?every|max_?episode|history|window|population|prefetch|chunk"
    r"|^(Linear|Dense|Conv\w*|LSTM|GRU|RNN|Embedding|MLP|deque)$)",
    re.IGNORECASE,
)
_NO_SIZE = re.compile(
    r"(total_?(time)?steps|learning_starts|warm_?up|(^|_)log|save|eval_(freq|every|interval)|seed|name|path|(^|_)dir|file"
    r"|url|step_?size|fig_?size|font|marker|line_?width|_id$|freq)",
    re.IGNORECASE,
)


def matters(key: str) -> bool:
    """Return whether a name is one that people give to what memory depends on."""
    last = key.rpartition(".")[2].replace("-", "_")
    return bool(_SIZES.search(last)) and not _NO_SIZE.search(last)
