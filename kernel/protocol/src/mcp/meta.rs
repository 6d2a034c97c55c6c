//! `_meta`: the keys reserved by the protocol, and those that the kernel reads.

use mgp_json::lookalike;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::refusal::Refusal;

/// In a stateless request: its protocol version.
pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// In a stateless request: the capabilities of its client.
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// In a stateless request: the self-description of its client.
pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// In a stateless request: the lowest log level while it is in flight.
pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// In a stateless result: the self-description of the server.
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// In each message of a subscription: the id of the `subscriptions/listen` that opened it.
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
/// In 2025-11-25: the task of a message.
pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";
/// In a callback of a server to the kernel: the id, as received by the server, of the request that caused
/// it. No client reads it.
pub const RELATED_CALL: &str = "mgp/relatedRequestId";
/// Id of MGP, in `extensions` of both capability objects.
pub const MGP: &str = "dev.cloto/mgp";
/// Id of the tasks extension, in `extensions` of both capability objects.
pub const TASKS: &str = "io.modelcontextprotocol/tasks";
/// Id of the MCP Apps extension, in `extensions` of both capability objects (SEP-1865).
pub const UI: &str = "io.modelcontextprotocol/ui";
/// Id of the Skills extension (SEP-2640).
pub const SKILLS: &str = "io.modelcontextprotocol/skills";

/// The members of `params._meta` that the kernel reads.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Meta<'a> {
    /// The token for `notifications/progress`.
    #[serde(borrow, default, rename = "progressToken")]
    pub progress_token: Option<&'a RawValue>,
    /// [`PROTOCOL_VERSION`]; a JSON string in a valid request.
    #[serde(borrow, default, rename = "io.modelcontextprotocol/protocolVersion")]
    pub protocol_version: Option<&'a RawValue>,
    /// [`CLIENT_CAPABILITIES`].
    #[serde(borrow, default, rename = "io.modelcontextprotocol/clientCapabilities")]
    pub client_capabilities: Option<&'a RawValue>,
    /// [`CLIENT_INFO`]: unverified, shown to people.
    #[serde(borrow, default, rename = "io.modelcontextprotocol/clientInfo")]
    pub client_info: Option<&'a RawValue>,
    /// [`LOG_LEVEL`].
    #[serde(borrow, default, rename = "io.modelcontextprotocol/logLevel")]
    pub log_level: Option<&'a RawValue>,
}

impl<'a> Meta<'a> {
    /// Parses `_meta`; an absent one is empty. Malformed members are rejected, because a server might read
    /// another token or version from them.
    ///
    /// # Errors
    /// [`Refusal::BadParams`]: it is no object, or a key that the kernel reads occurs twice.
    pub fn parse(raw: Option<&'a RawValue>) -> Result<Self, Refusal> {
        let Some(raw) = raw else {
            return Ok(Self::default());
        };
        lookalike::from_object(raw.get())
            .map_err(|e| Refusal::BadParams(format!("`_meta`: {}", lookalike::strip_position(&e))))
    }

    /// True if the request declares the stateless protocol, valid or not: a malformed one must get the
    /// errors of that protocol.
    #[must_use]
    pub fn is_stateless(&self) -> bool {
        self.protocol_version.is_some() || self.client_capabilities.is_some()
    }
}

/// The `params` of which the kernel reads `_meta` only.
#[derive(Debug, Default, Deserialize)]
pub struct WithMeta<'a> {
    /// The raw text.
    #[serde(borrow, default, rename = "_meta")]
    pub meta: Option<&'a RawValue>,
}

/// The progress token in params, borrowed from them.
///
/// # Errors
/// A `_meta` that a server may read differently from the kernel.
pub fn progress_token(params: &str) -> Result<Option<&RawValue>, Refusal> {
    let wrapper: WithMeta<'_> =
        lookalike::from_object(params).map_err(|error| Refusal::BadParams(error.to_string()))?;
    Ok(Meta::parse(wrapper.meta)?.progress_token)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel would read one of the two, a server the other.
    #[test]
    fn duplicate_keys_are_rejected() {
        let read = |text: &'static str| {
            let raw: &RawValue = serde_json::from_str(text).unwrap();
            Meta::parse(Some(raw)).map(|meta| meta.progress_token.map(RawValue::get))
        };
        for bad in [
            r#"{"progressToken":"z","progressToken":6}"#,
            r#"{"progressToken":1,"progressTo\u006ben":2}"#,
            r#"{"io.modelcontextprotocol/logLevel":1,"io.modelcontextprotocol\/logLevel":2}"#,
            r#"{"\ud800":1,"progressToken":5}"#,
            "[1]",
            "7",
        ] {
            let error = read(bad).unwrap_err();
            assert!(
                error.to_string().starts_with("Invalid params: `_meta`: "),
                "{error}"
            );
        }
        let other = r#"{"x":1,"x":2,"ProgressToken":3,"progressToken":5}"#;
        assert_eq!(read(other).unwrap(), Some("5"));
        assert!(Meta::parse(None).is_ok());
    }

    /// The renamed members are equal to the constants.
    #[test]
    fn members_have_the_names_of_their_constants() {
        let keys = [
            PROTOCOL_VERSION,
            CLIENT_CAPABILITIES,
            CLIENT_INFO,
            LOG_LEVEL,
        ];
        let read = |key: &str| {
            let text = format!(r#"{{"{key}":1}}"#);
            let meta: Meta<'_> = serde_json::from_str(&text).unwrap();
            let found = [
                meta.protocol_version,
                meta.client_capabilities,
                meta.client_info,
                meta.log_level,
            ];
            (found.map(|raw| raw.is_some()), meta.is_stateless())
        };
        for (at, key) in keys.into_iter().enumerate() {
            let (found, modern) = read(key);
            assert_eq!(found, std::array::from_fn(|i| i == at), "{key}");
            assert_eq!(modern, at < 2, "{key}");
        }
        assert!(!read("progressToken").1);
    }
}
