// The shapes that the server sends: those that `perdure … --json` prints.
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

export interface Head { timeline: string; version: number; commit: string | null }
export interface Cost { usd: number; steps: number; unpriced: number }

export interface ThreadRow {
  id: string; title: string | null; agent: string; owner: string | null; begun_at: string; last_at: string | null; said_at: string | null;
  turns: number; timelines: number; head: Head;
  approvals: number; running: boolean; interrupted: boolean; held: boolean; damaged: boolean; unknown: number; state: string | null; backend: string | null; cost: Cost | null; last: string;
}
export interface ThreadPage { threads: ThreadRow[]; more: boolean; near: string[]; next?: string }

export interface Timeline { timeline: string; version: number; commit: string | null; turns: number; sealed: boolean; removal: 'dropped' | 'forgotten' | null; effect_max?: string | null }
export interface ThreadDetail {
  id: string; agent: string; owner: string | null; backend: string | null; server: string | null; begun_at: string;
  held: boolean; held_from: string | null; head: Head; commit: string | null; names: string[]; paths: number; timelines: Timeline[]; messages: Message[]; cost: Cost;
}

export interface Block { type: string; text?: string; uri?: string; mimeType?: string }
export interface ToolCall { id: string; name: string; args: Json }
export interface ToolResult { callId: string; status: string; content: Block[] }
export interface Words { role: string; content?: Block[]; toolCalls?: ToolCall[]; toolResults?: ToolResult[]; vendorMetadata?: Json }
export interface Message {
  id: string; role: string; text: string; commit: string; at: string; run: string | null;
  provider: string | null; model: string | null; message: Words | null; forgotten: string | null;
  redacted?: { of: string; at: string; by: string | null; why: string } | null;
}
export interface PathChange { path: string; what: string }
export interface StepTime { message: string; begun_at: string; ended_at: string }
export interface Turn {
  number: number; position: number; before: string | null; after: string; reason: string; at: string; ended_at: string; kind: string; steps?: StepTime[];
  run: string | null; status: string | null; why: string | null; backend: string | null;
  input: string; text: string; names: string[]; messages?: Message[]; changed?: PathChange[]; forgotten?: boolean; damaged?: boolean;
}
export interface TurnPage { thread: string; timeline: string; turns: Turn[]; settled: Record<string, string>; more: boolean }
export interface GraphNode { commit: string; parents: string[]; timelines: string[]; turn: Turn }
export interface GraphPage { thread: string; nodes: GraphNode[]; more: boolean; dropped: number }
export interface Commit {
  digest: string; parents: string[]; root: string; reason: string; at: string; depth: number; turn: number;
  run: string | null; author: string | null; events: Json[]; ops: Json[];
}
export interface CommitLog { commits: Commit[]; more: boolean }
export interface Move { reason: string | null; version: number; act: string; from: string | null; to: string | null; at: string | null; author: string | null; turn: number }
export interface MovePage { thread: string; timeline: string; moves: Move[]; more: boolean; next?: string }

export interface Call {
  thread: string; id: string; tool: string; state: string; effect: string; idempotent: boolean; arguments: Json;
  attempt: number; key: string | null; timeline: string; run: string | null; backend: string | null; origin: string | null;
  copied_from: string | null; ticket: string | null; status: string | null; outcome: string | null; result: string | null;
  why: string | null; started_at: string | null; ended_at: string | null; at: string;
}
export interface CallPage { thread: string | null; calls: Call[]; more: boolean; next?: string }
export interface CallDetail { thread: string; call: Call; reconcilable: boolean; shown: string | null; passed: { at: string; states: string[]; by: string | null; why: string | null }[] }

export interface Ticket {
  thread: string; id: string; call: string; tool: string; effect: string; idempotent: boolean; arguments: Json;
  action: string; repeat: string | null; message: string; timeline: string; run: string | null; asked_at: string; age_seconds: number;
  expires_at: string | null; on_timeout: string; resume: string; parameters: Json; response_schema: Json; follows: string | null;
}
export interface ApprovalPage { approvals: Ticket[]; held: string[]; more: boolean; next?: string }
export interface Decision { verdict: string; at: string; by: string | null; why: string | null; value: Json }
export interface ApprovalDetail { held: boolean; held_from: string | null; ticket: Ticket; call: Call; arguments: Json; repeats: Call | null; decision: Decision | null }
export interface Decided { ticket: string; call: Call; decision: Decision; again: boolean }

export interface Run {
  thread: string; id: string; agent: string; timeline: string; state: string; interrupted: boolean; decided: boolean;
  begun_at: string; at: string; due: string | null; backend: string | null; why: string | null; set_aside: boolean; scheduled: boolean;
}
export interface ServedRun extends Run { cost: Cost | null; usage: Record<string, number> | null }
export interface Loss { kind: string; where: string; what: string; why: string }
export interface RunDetail {
  run: Run; route: { from_backend: string | null; to_backend: string; why: string | null }[]; calls: Call[]; losses: Loss[]; cost: Cost; usage: Record<string, number>;
  parent: { thread: string; run: string | null; call: string } | null; children: { thread: string; run: string; agent: string; state: string }[];
}

export interface Value { form: string; media_type: string; size: number; digest: string; value?: Json; base64?: string }
export interface StateChange { path: string; what: string; before: Value | null; after: Value | null }
export interface Side { name: string; commit: string | null; messages: Message[]; calls: { commit: string; call: string; tool: string }[]; cost: Cost }
export interface Comparison { thread: string; same: boolean; base: string | null; a: Side; b: Side; state: StateChange[] }
export interface KeyValue { value: Json }
export interface ConflictedKey { place: string[]; base: KeyValue | string | null; ours: KeyValue | string | null; theirs: KeyValue | string | null }
export interface MergePreview { base: string | null; paths: number; changed: PathChange[]; conflicts: { path: string; why: string; keys: ConflictedKey[] }[] }
export interface Entry { path: string; form: string; media_type: string; size: number; digest: string; preview: string }
export interface StatePage { commit: string | null; prefix: string; paths: Entry[]; more: boolean; next?: string }
export interface StateValue extends Value { path: string; commit: string | null }
export interface Blame {
  path: string; place: (string | number)[]; preview: string; commit: string; turn: number; reason: string; at: string; author: string | null;
  run: string | null; backend: string | null; message: Message | null; merged_from: string | null;
}
export interface PathVersion {
  commit: string; before: string | null; turn: number; apart: boolean; reason: string; input: string; at: string; run: string | null;
  digest: string | null; size: number | null; preview: string | null; forgotten: boolean; value?: Json;
}
export interface PathLog { path: string; place: (string | number)[]; versions: PathVersion[]; more: boolean; next?: string }
export interface ContextItem { tier: number; tier_name: string; what: string; tokens: number; included: boolean; why: string; refs: string[] }
export interface Context {
  thread: string; timeline: string; backend: string; commit: string | null; window: number | null; reserved: number;
  tokens: number; margin: number; fits: boolean; items: ContextItem[]; context: Json; request: Json;
}
export interface Grade { topic: string; mark: string; line: string; fallback: string | null; why: string; gate: string }
export interface Report {
  thread: string; timeline: string; from_backend: string | null; to_backend: string; ok: boolean; outcome: string;
  items: Grade[]; losses: Loss[]; notes: string[]; checkpoint: string | null; commit: string | null; told: string;
}
export interface Switched { dry_run: boolean; switched: boolean; report: Report }
export interface HeadMove { thread: string; head: Head; turn: number; old_main?: string | null; still_done?: string[]; may_be_done?: string[] }
export interface RunResult { thread: string; run: string | Run; status?: string; text?: string; why?: string | null; approvals?: Ticket[] }

export interface Agent { name: string; backend: string | null; tools: string[]; applied_at: string | null; version: string | null; served?: boolean }
export interface AgentDetail { name: string; threads: string[]; next?: string; versions: { digest: string; commit: string; at: string; definition: Json }[]; served?: boolean }
export interface Backend { name: string; provider: string; model: string; context: number | null; input_usd: number | null; output_usd: number | null }
export interface MemoryItem {
  id: string; owner: string; text: string; kind: string; scope: string; trust: string; at: string; expires_at: string | null;
  reference: string; source: { thread: string; commit: string; run: string | null; call: string | null; agent: string | null } | null;
}
export interface MemoryChange { commit: string; did: string | null; reason: string; at: string; run: string | null; thread: string | null; by: string | null; item: string | null; items: string[]; withdrawn: boolean; text: string | null }
export interface MemoryChanges { commits: MemoryChange[]; more: boolean }
export interface Artifact { digest: string; reference: string; name: string | null; media_type: string; size: number; sha256: string; at: string | null; call: string | null; commit: string | null }
export interface Verified {
  store: string; ok: boolean; faults: { space: string; kind: string; what: string; digest: string | null; name: string | null; place: string | null }[];
  checked: Record<string, number>; unchecked: number; unnamed: number; written: number; partial: number;
  began_at: string; ended_at: string;
}
export interface Found { thread: string; timeline: string; message: Message; turn: number; kind: 'text' | 'reasoning' | 'call' | 'result'; text: string; call: string | null }
export interface Search { query: string; found: Found[]; scanned: number; more: boolean; next?: string }
export interface Session { name: string; roles: string[]; version: string; store: string; read_only: boolean; served: string[] }
export interface StoredObject { digest: string; kind: string; size: number; text: string | null; base64: string | null }

export const ITEM_KINDS = ['semantic', 'episodic', 'procedural', 'preference'];
export const EFFECTS = ['none', 'read_only', 'local_write', 'external_write', 'communication', 'financial', 'code_execution', 'privileged'];
