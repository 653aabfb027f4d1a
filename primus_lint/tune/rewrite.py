"""Changed keys -> edits of the file: where a person would write them, in the style of the file.

A key that the file sets is replaced in place (inside `${VAR:default}` only the default is); an inherited or absent
key becomes an override behind its nearest relative. The outcome is proved by the source layer, and checked again by
the same rules before anything is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.readers.document import Origin

if TYPE_CHECKING:
    from collections.abc import Iterable

    from primus_lint.pipeline import Checked
    from primus_lint.readers.document import ResolvedDocument, Section
    from primus_lint.rules.finding import Change, Finding, Fix
    from primus_lint.source.rewrite import Edited, Operation
    from primus_lint.source.splice import EditError

# Behind which key a new one goes, the nearest relative first; one not listed goes to the end of the overrides. Of keys that
# are relatives of each other the one that a person writes first comes first.
RELATIVES: dict[str, tuple[str, ...]] = {
    "tensor_model_parallel_size": ("pipeline_model_parallel_size", "expert_model_parallel_size"),
    "pipeline_model_parallel_size": ("tensor_model_parallel_size", "expert_model_parallel_size"),
    "expert_model_parallel_size": ("pipeline_model_parallel_size", "tensor_model_parallel_size"),
    "expert_tensor_parallel_size": ("expert_model_parallel_size", "tensor_model_parallel_size"),
    "context_parallel_size": (
        "expert_model_parallel_size",
        "pipeline_model_parallel_size",
        "tensor_model_parallel_size",
    ),
    "training.global_batch_size": ("training.local_batch_size",),
    "activation_checkpoint.selective_ac_option": ("activation_checkpoint.mode",),
    "cp_comm_type": ("context_parallel_size",),
    "num_virtual_stages_per_pipeline_rank": ("pipeline_model_parallel_size",),
    "num_layers_per_virtual_pipeline_stage": ("pipeline_model_parallel_size",),
    "pipeline_model_parallel_layout": ("pipeline_model_parallel_size",),
    "decoder_first_pipeline_num_layers": ("pipeline_model_parallel_size",),
    "decoder_last_pipeline_num_layers": ("decoder_first_pipeline_num_layers", "pipeline_model_parallel_size"),
    "account_for_embedding_in_pipeline_split": ("num_virtual_stages_per_pipeline_rank", "pipeline_model_parallel_size"),
    "account_for_loss_in_pipeline_split": ("account_for_embedding_in_pipeline_split", "pipeline_model_parallel_size"),
    "patch_primus_pipeline": ("num_virtual_stages_per_pipeline_rank", "pipeline_model_parallel_size"),
    "pp_algorithm": ("patch_primus_pipeline",),
    "sequence_parallel": ("expert_model_parallel_size", "tensor_model_parallel_size"),
    "recompute_granularity": ("overlap_grad_reduce", "pipeline_model_parallel_size"),
    "recompute_method": ("recompute_granularity",),
    "recompute_num_layers": ("recompute_method", "recompute_granularity"),
    "recompute_modules": ("recompute_granularity",),
    "recompute_layer_ids": ("recompute_granularity",),
    "micro_batch_size": ("train_iters", "global_batch_size"),
    "global_batch_size": ("micro_batch_size",),
    "use_distributed_optimizer": (
        "use_torch_fsdp2",
        "overlap_grad_reduce",
        "overlap_param_gather",
        "sequence_parallel",
        "context_parallel_size",
        "pipeline_model_parallel_size",
        "tensor_model_parallel_size",
    ),
    "overlap_grad_reduce": ("use_distributed_optimizer", "overlap_param_gather"),
    "overlap_param_gather": ("overlap_grad_reduce",),
    "tp_comm_overlap": ("sequence_parallel", "overlap_param_gather", "tensor_model_parallel_size"),
    "overlap_moe_expert_parallel_comm": (
        "moe_token_dispatcher_type",
        "overlap_param_gather",
        "overlap_grad_reduce",
        "expert_model_parallel_size",
    ),
    "moe_shared_expert_overlap": ("overlap_moe_expert_parallel_comm", "moe_token_dispatcher_type"),
    "moe_permute_fusion": ("moe_use_legacy_grouped_gemm", "moe_grouped_gemm", "moe_router_dtype"),
    "moe_grouped_gemm": ("moe_permute_fusion", "moe_router_dtype"),
    "moe_use_legacy_grouped_gemm": ("moe_grouped_gemm", "moe_permute_fusion", "moe_router_dtype"),
    "moe_router_dtype": ("moe_token_dispatcher_type", "moe_permute_fusion"),
    "moe_enable_deepep": ("moe_token_dispatcher_type",),
    "use_turbo_grouped_gemm": ("use_turbo_attention", "enable_primus_turbo"),
    "use_turbo_deepep": ("use_turbo_grouped_gemm", "enable_primus_turbo"),
    "fp8_recipe": ("fp8",),
    "cross_entropy_fusion_impl": ("cross_entropy_loss_fusion",),
    "use_precision_aware_optimizer": ("use_distributed_optimizer", "overlap_param_gather", "overlap_grad_reduce"),
    "exp_avg_dtype": ("use_precision_aware_optimizer",),
    "exp_avg_sq_dtype": ("exp_avg_dtype",),
    "grad_reduce_in_bf16": ("exp_avg_sq_dtype", "use_distributed_optimizer", "overlap_grad_reduce"),
}


def locate_origin(section: Section, key: str, document: ResolvedDocument) -> Origin | None:
    """The place in the file itself that sets the key, also when something stronger hides it."""
    value = section.values.get(key)
    for origin in value.origins if value is not None else ():
        if origin.path == document.path and origin.line > 0 and origin.key_path:
            return origin
    return None


def _mapping_path(section: Section, name: str, document: ResolvedDocument) -> tuple[str | int, ...] | None:
    """The path of a mapping that the file itself writes, told by the first key in it."""
    for key in section.values:
        if key.startswith(name + "."):
            origin = locate_origin(section, key, document)
            if origin is not None:
                return origin.key_path[: len(origin.key_path) - key[len(name) :].count(".")]
    return None


def relatives_first(changes: Iterable[Change]) -> list[Change]:
    """Changes in the order of RELATIVES, so that a new key finds relatives that are new, too."""
    places = {key: place for place, key in enumerate(RELATIVES)}
    return sorted(changes, key=lambda change: places.get(change.key, -1))


def operations(changes: Iterable[Change], section: Section, document: ResolvedDocument) -> list[Operation] | str:
    """The edit operations of some changed keys; a text that says why when one cannot be written here."""
    from primus_lint.source.rewrite import Operation

    out: list[Operation] = []
    if document.doc is None:
        return f"{document.format} files are shown, not written"
    if document.format == "megatron-yaml":
        return _flag_operations(changes, section, document)
    for change in changes:
        origin = locate_origin(section, change.key, document)
        if change.op == "drop":
            if origin is not None:
                out.append(Operation("delete", origin.key_path))
            continue
        if change.op == "rename":
            path = origin.key_path if origin is not None else _mapping_path(section, change.key, document)
            if path is None:
                return f"{change.key} is not set in this file"
            section_of, _, last = str(change.value).rpartition(".")
            if section_of != change.key.rpartition(".")[0]:
                return f"{change.key} cannot be renamed to {change.value}, a key of another section"
            out.append(Operation("rename", path, last))
            continue
        if origin is not None:
            gone = change.value is None and _is_null_without(change.key, origin, section, document)
            out.append(Operation("delete", origin.key_path) if gone else _set(origin, change.value))
            continue
        if not section.node_path:
            return f"{change.key} has no place in this file"
        path = (*section.node_path, *change.key.split("."))
        if any(each.code == "section-replaced" and each.key_path == section.node_path for each in document.problems):
            return (
                f"{'.'.join(map(str, section.node_path))} is null here and so removes what the parents set: a key written "
                "under it would bring all of that back; delete the line, or write the keys that are meant"
            )
        out.extend(_insert(path, change, section, document, out))
    return out


def _is_null_without(key: str, origin: Origin, section: Section, document: ResolvedDocument) -> bool:
    """Whether a key that is to be null may leave the file instead: nothing weaker sets it, and no comment goes with it."""
    from primus_lint.lower.megatron.tables import defaults
    from primus_lint.lower.megatron.versions import DEFAULT, canonical

    origins = section.values[key].origins
    weaker = origins[origins.index(origin) + 1 :]
    version = canonical(document.framework_version) if document.framework_version else DEFAULT
    below = weaker[0].value if weaker else defaults(version or DEFAULT, "primus-megatron").get(key)
    if below is not None or document.source is None:
        return False
    lines = document.source.text.splitlines()
    above = lines[origin.line - 2].strip() if origin.line > 1 else ""
    return "#" not in lines[origin.line - 1] and not above.startswith("#")


def _flag_operations(changes: Iterable[Change], section: Section, document: ResolvedDocument) -> list[Operation] | str:
    """The same for a `MODEL_ARGS` mapping of command-line flags."""
    from primus_lint.source.rewrite import Operation
    from primus_lint.tune.flag_steps import flag_steps

    steps = flag_steps(changes, section, document)
    if isinstance(steps, str):
        return steps
    out: list[Operation] = []
    for step in steps:
        origin = locate_origin(section, step.key, document)
        if step.op == "insert":
            after = _relative_flag(step.key, section, document, out)
            out.append(Operation("insert", (*section.node_path, step.flag), step.value, after=after))
        elif origin is not None:
            out.append(Operation(step.op, origin.key_path, step.value))
    return out


def _relative_flag(key: str, section: Section, document: ResolvedDocument, planned: list[Operation]) -> Any:
    """The flag behind which a new one goes: the nearest relative's that stays in the file."""
    gone = {operation.path for operation in planned if operation.op == "delete"}
    new = {operation.path[-1] for operation in planned if operation.op == "insert"}
    for relative in RELATIVES.get(key, ()):
        flag = "--" + relative.replace("_", "-")
        if flag in new:
            return _last_behind(flag, planned)
        origin = locate_origin(section, relative, document)
        if origin is not None and origin.key_path not in gone:
            return _last_behind(origin.key_path[-1], planned)
    return None


def _last_behind(name: Any, planned: list[Operation]) -> Any:
    """What new keys follow a key already: the next one goes behind the last of them."""
    for operation in planned:
        if operation.op == "insert" and operation.after == name:
            name = operation.path[-1]
    return name


def _set(origin: Origin, value: Any) -> Operation:
    from primus_lint.source.rewrite import Operation

    raw = origin.raw or ""
    if origin.variable is not None and raw.strip("'\"").startswith("${") and isinstance(value, (int, float, str, bool)):
        text = "true" if value is True else "false" if value is False else str(value)
        if "}" not in text:
            return Operation("set-default", origin.key_path, text)
    return Operation("set", origin.key_path, value)


def _insert(
    path: tuple[str | int, ...], change: Change, section: Section, document: ResolvedDocument, planned: list[Operation]
) -> list[Operation]:
    from primus_lint.source.rewrite import Operation

    assert document.doc is not None
    new = {operation.path for operation in planned if operation.op == "insert"}
    mapping = path[:-1]
    for relative in RELATIVES.get(change.key, ()):
        origin = locate_origin(section, relative, document)
        here = origin is not None and origin.key_path[:-1] == mapping
        if here or (*section.node_path, *relative.split(".")) in new:
            return [Operation("insert", path, change.value, after=_last_behind(relative.split(".")[-1], planned))]
    there = 0  # how many steps of the path of the mapping stand in the file, or were planned before
    while there < len(mapping) and document.doc.node(mapping[: there + 1]) is not None:
        there += 1
    # Of a key in a block, and in a file that only extends others: the mappings down to it are made, each on its own line.
    steps = [mapping[:end] for end in range(there + 1, len(mapping) + 1)]
    made = [Operation("insert", step) for step in steps if step not in new]
    return [*made, Operation("insert", path, change.value)]


def rewrite(changes: Iterable[Change], section: Section, document: ResolvedDocument) -> Edited | EditError | str:
    """The file with some keys changed, proved; or why that cannot be done."""
    from primus_lint.source.rewrite import edit

    changes = relatives_first(changes)
    if document.format == "shell":
        from primus_lint.tune.rewrite_shell import rewrite_shell

        return rewrite_shell(changes, section, document)
    todo = operations(changes, section, document)
    if isinstance(todo, str):
        return todo
    assert document.doc is not None
    return edit(document.doc, todo)


def fix_edits(fix: Fix, finding: Finding, checked: Checked) -> list[dict[str, Any]]:
    """The byte edits of a fix for the report; [] when it cannot be written here."""
    from primus_lint.source.rewrite import Edited

    if finding.section is None:
        return []
    result = rewrite(fix.changes, finding.section, checked.document)
    if not isinstance(result, Edited) or checked.document.source is None:
        return []
    source = checked.document.source
    return [
        {"byte_start": source.byte_offset(s.start), "byte_end": source.byte_offset(s.end), "text": s.text}
        for s in result.splices
    ]
