//! Which strings of a message are text, and which ones the protocol needs as they are.

use super::secrets::is_secret_name;

/// How the strings of a value are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Zone {
    /// Members of the protocol: some of them are identifiers.
    Protocol,
    /// Questions in a result.
    Questions,
    /// What a server says to the client's model: instructions by its nature.
    Prompt,
    /// `structuredContent`: a client may check it against a schema.
    Structured,
    /// A value that a server chose.
    Free,
    /// A schema: its names are those of arguments.
    Schema,
    /// Identifiers and addresses.
    Opaque,
    /// Binary data in base64, if it is that.
    Binary,
    /// The name says that it is a secret.
    Secret,
}

/// Identifiers, addresses, dates and words of the protocol, whose change would break it.
const OPAQUE: [&str; 35] = [
    "baggage",
    "callback_id",
    "channel",
    "checkpoint",
    "createdAt",
    "cursor",
    "elicitationId",
    "icons",
    "id",
    "jsonrpc",
    "lastModified",
    "lastUpdatedAt",
    "level",
    "method",
    "mimeType",
    "mode",
    "nextCursor",
    "progressToken",
    "protocolVersion",
    "requestId",
    "requestState",
    "request_id",
    "resourceUri",
    "resultType",
    "role",
    "status",
    "subscription_id",
    "taskId",
    "timestamp",
    "toolUseId",
    "traceparent",
    "tracestate",
    "type",
    "uri",
    "url",
];
/// Values in schemas that an answer has to repeat, and references.
const SCHEMA_OPAQUE: [&str; 9] = [
    "$id", "$ref", "$schema", "const", "enum", "format", "pattern", "required", "type",
];

impl Zone {
    /// The zone of the member of this name in an object of this zone, in so many containers.
    pub(super) fn member(self, name: &str, depth: usize) -> Self {
        match self {
            Self::Opaque | Self::Secret | Self::Binary => self,
            Self::Schema if SCHEMA_OPAQUE.contains(&name) => Self::Opaque,
            Self::Schema => Self::Schema,
            Self::Free | Self::Structured if is_secret_name(name) => Self::Secret,
            Self::Free | Self::Structured => self,
            Self::Questions if matches!(name, "messages" | "systemPrompt") => Self::Prompt,
            Self::Protocol | Self::Questions | Self::Prompt => match name {
                "inputRequests" => Self::Questions,
                "structuredContent" => Self::Structured,
                // Of errors, logs and events; below that it is an image or a sound.
                "data" if depth == 1 => Self::Free,
                "data" | "blob" => Self::Binary,
                "arguments" | "input" => Self::Free,
                "requestedSchema" | "inputSchema" | "outputSchema" => Self::Schema,
                name if OPAQUE.contains(&name) => Self::Opaque,
                name if is_secret_name(name) => Self::Secret,
                _ => self,
            },
        }
    }

    /// Whether a name in an object of this zone is text of the server's choice.
    pub(super) fn has_free_names(self) -> bool {
        matches!(self, Self::Free | Self::Structured)
    }
}
