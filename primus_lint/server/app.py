"""The server: protocol messages -> the functions of this package.

Every answer is computed from the text in the editor; a check takes some milliseconds, so handlers simply compute.
Only `--fix`, which searches, runs in a thread, on a recipe of its own.
"""

from __future__ import annotations

import asyncio
import os
import re
from typing import TYPE_CHECKING, Any

from lsprotocol import types
from pygls import uris
from pygls.lsp.server import LanguageServer

from primus_lint import __version__
from primus_lint.cli.common import UsageError, make_options
from primus_lint.rules.catalogue import use_rule_paths
from primus_lint.rules.select import pattern_problems
from primus_lint.server import actions, completion, diagnostics, edits, hover
from primus_lint.server.analysis import Analysis, analyse
from primus_lint.settings import FILE_NAMES, forget_settings, load_settings, read_settings
from primus_lint.source.text import SourceText

if TYPE_CHECKING:
    from primus_lint.pipeline import Options
    from primus_lint.settings import Settings

WAIT_S = 0.15  # how long typing must pause before the text is checked again
CLIENT_KEYS = ("gpu", "nodes", "world_size", "gpus_per_node", "env", "set", "model", "framework_version", "primus_root")


class Server(LanguageServer):
    """A language server with what it knows: options, and the newest analysis of every open document."""

    def __init__(self, values: dict[str, Any] | None = None) -> None:
        super().__init__("primus-lint", __version__, text_document_sync_kind=types.TextDocumentSyncKind.Full)
        self.values = dict(values or {})  # of the command line
        self.options: Options = make_options(self.values)
        self.analyses: dict[str, tuple[int | None, Analysis]] = {}
        self.timers: dict[str, asyncio.TimerHandle] = {}
        self.settings_shown: set[str] = set()  # settings files that have diagnostics now

    def configure(self, given: Any) -> None:
        """Take the client's options (`gpu`, `nodes`, `worldSize`, ...) on top of the command line's."""
        table = given.get("primus-lint", given.get("primusLint", given)) if isinstance(given, dict) else None
        if not isinstance(table, dict):
            return
        values = dict(self.values)
        for name, value in table.items():
            key = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", str(name)).lower().replace("-", "_")
            if key not in CLIENT_KEYS:
                self.say(f"unknown option {name!r}; there are {', '.join(CLIENT_KEYS)}", types.MessageType.Warning)
            elif key in ("env", "set"):
                pairs = value.items() if isinstance(value, dict) else ()
                values["set_values" if key == "set" else key] = [f"{left}={right}" for left, right in pairs]
            elif value is not None and value != "":
                values[key] = value
        try:
            self.options = make_options(values)
        except UsageError as error:
            self.say(str(error), types.MessageType.Error)

    def at_hand(self, uri: str) -> Analysis | None:
        """The analysis of a document, or None when it is neither open nor a file that can be read."""
        try:
            return self.analysis(uri)
        except (OSError, UnicodeDecodeError):
            return None

    def analysis(self, uri: str) -> Analysis:
        """The analysis of a document as it stands now. Raises OSError or UnicodeDecodeError for one that is not open."""
        document = self.workspace.get_text_document(uri)
        known = self.analyses.get(uri)
        if known is not None and known[0] == document.version and document.version is not None:
            return known[1]
        self.take_rules(load_settings(document.path))
        encoding = str(getattr(self.workspace.position_encoding, "value", self.workspace.position_encoding))
        found = analyse(uri, document.path, document.source, self.options, encoding)
        found.compare(self.open_source)
        self.analyses[uri] = (document.version, found)
        return found

    def take_rules(self, settings: Settings) -> None:
        """Let the rules of one's own that the settings name come into force."""
        try:
            use_rule_paths(settings.rule_folders())
        except ValueError as error:  # RuleError: a malformed rule
            use_rule_paths(())
            self.say(str(error), types.MessageType.Error)

    def open_source(self, path: str) -> SourceText:
        """A file as the editor has it, else from disk. Raises OSError."""
        document = self.workspace.text_documents.get(uris.from_fs_path(path) or "")
        return SourceText.from_path(path) if document is None else SourceText.from_text(path, document.source)

    def publish(self, uri: str) -> None:
        """Check a document and show its findings, and those of its settings file."""
        self.timers.pop(uri, None)
        document = self.workspace.text_documents.get(uri)
        if document is None:
            return
        if os.path.basename(document.path) in FILE_NAMES:
            self.publish_settings(document.path)
            return
        analysis = self.analysis(uri)
        shown = diagnostics.diagnostics(analysis) if analysis.checked.is_recipe or analysis.checked.unreadable else []
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, shown, document.version))
        if analysis.settings.path is not None:
            self.publish_settings(analysis.settings.path)

    def publish_settings(self, path: str) -> None:
        """Show what is wrong with a settings file on disk, and with those that it extends."""
        settings = read_settings(path)
        problems = []
        if settings is not None:
            self.take_rules(settings)
            problems = [*settings.problems, *pattern_problems(settings)]
        files = [] if settings is None else [str(layer.path) for layer in settings.layers]
        for file in dict.fromkeys([path, *files, *(problem.path for problem in problems)]):
            uri = uris.from_fs_path(os.path.abspath(file))
            shown = [diagnostics.settings_diagnostic(problem) for problem in problems if problem.path == file]
            if uri is None or not (shown or file in self.settings_shown):
                continue
            (self.settings_shown.add if shown else self.settings_shown.discard)(file)
            self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, shown))

    def publish_all(self) -> None:
        """Settings or a parent file changed: look at everything again."""
        forget_settings()
        self.analyses.clear()
        for uri in list(self.workspace.text_documents):
            self.publish(uri)

    def publish_soon(self, uri: str) -> None:
        """Check when typing pauses."""
        timer = self.timers.pop(uri, None)
        if timer is not None:
            timer.cancel()
        self.timers[uri] = asyncio.get_running_loop().call_later(WAIT_S, self.publish, uri)

    def say(self, message: str, kind: types.MessageType = types.MessageType.Info) -> None:
        """A message for the person at the editor."""
        self.window_show_message(types.ShowMessageParams(kind, f"primus-lint: {message}"))


async def fix(server: Server, uri: str, tune: bool) -> None:
    """Repair (and tune) a document through an edit of the client; say what was done and what could not be."""
    from primus_lint.tune.fix import Rules, fix_source

    analysis = server.at_hand(uri)
    if analysis is None:
        server.say(f"{uri} cannot be read", types.MessageType.Error)
        return
    version = server.workspace.get_text_document(uri).version
    loop = asyncio.get_running_loop()
    arguments = (analysis.source, analysis.options, analysis.settings, Rules(tune=tune))
    result = await loop.run_in_executor(None, fix_source, *arguments)
    lines = [*(f"applied: {title}" for title in result.applied), *result.messages]
    server.say("; ".join(lines) if lines else "nothing to change")
    if result.changed:
        changes = edits.of_texts(result.source.text, analysis.positions)
        edit = edits.workspace_edit(uri, version, changes)
        server.workspace_apply_edit(types.ApplyWorkspaceEditParams(edit, "primus-lint --fix"))


def create(values: dict[str, Any] | None = None) -> Server:
    """A server; `values` are the options of the command line."""
    server = Server(values)

    @server.feature(types.INITIALIZED)
    def initialized(ls: Server, params: types.InitializedParams) -> None:
        watched = ls.client_capabilities.workspace
        files = watched.did_change_watched_files if watched is not None else None
        if files is None or not files.dynamic_registration:
            return
        watchers = [types.FileSystemWatcher(f"**/{name}") for name in FILE_NAMES]
        register = types.DidChangeWatchedFilesRegistrationOptions(watchers)
        ls.client_register_capability(
            types.RegistrationParams(
                [types.Registration("settings", types.WORKSPACE_DID_CHANGE_WATCHED_FILES, register)]
            )
        )

    @server.feature(types.INITIALIZE)
    def initialize(ls: Server, params: types.InitializeParams) -> None:
        ls.configure(params.initialization_options)

    @server.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)
    def configuration(ls: Server, params: types.DidChangeConfigurationParams) -> None:
        ls.configure(params.settings)
        ls.publish_all()

    @server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def watched_files(ls: Server, params: types.DidChangeWatchedFilesParams) -> None:
        ls.publish_all()

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def opened(ls: Server, params: types.DidOpenTextDocumentParams) -> None:
        ls.analyses.pop(params.text_document.uri, None)
        ls.publish(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def changed(ls: Server, params: types.DidChangeTextDocumentParams) -> None:
        ls.publish_soon(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    def saved(ls: Server, params: types.DidSaveTextDocumentParams) -> None:
        ls.publish_all()  # other open files may extend this one

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def closed(ls: Server, params: types.DidCloseTextDocumentParams) -> None:
        uri = params.text_document.uri
        ls.analyses.pop(uri, None)
        ls.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    def hovered(ls: Server, params: types.HoverParams) -> types.Hover | None:
        analysis = ls.at_hand(params.text_document.uri)
        if analysis is None:
            return None
        found = hover.hover(analysis, analysis.positions.offset(params.position))
        if found is None:
            return None
        return types.Hover(
            types.MarkupContent(types.MarkupKind.Markdown, found[0]), analysis.positions.range(*found[1])
        )

    @server.feature(types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=[" ", "-", "=", "["]))
    def complete(ls: Server, params: types.CompletionParams) -> list[types.CompletionItem]:
        analysis = ls.at_hand(params.text_document.uri)
        return [] if analysis is None else completion.completion(analysis, analysis.positions.offset(params.position))

    kinds = [types.CodeActionKind.QuickFix, types.CodeActionKind.Source, actions.FIX_ALL]

    @server.feature(types.TEXT_DOCUMENT_CODE_ACTION, types.CodeActionOptions(kinds))
    def code_actions(ls: Server, params: types.CodeActionParams) -> list[types.CodeAction | types.Command]:
        uri = params.text_document.uri
        analysis = ls.at_hand(uri)
        if analysis is None:
            return []
        version = ls.workspace.get_text_document(uri).version
        only = params.context.only
        wanted = None if only is None else [str(getattr(kind, "value", kind)) for kind in only]
        return actions.actions(analysis, params.range, version, wanted)

    @server.command(actions.FIX_COMMAND)
    async def fix_file(ls: Server, uri: str) -> None:
        await fix(ls, uri, tune=True)

    @server.command(actions.REPAIR_COMMAND)
    async def repair_file(ls: Server, uri: str) -> None:
        await fix(ls, uri, tune=False)

    return server
