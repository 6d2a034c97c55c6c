//! `_meta`: the keys reserved by the protocol, and those the kernel reads.

use mgp_json::lookalike;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::refusal::Refusal;

/// Of a modern request: the version it is written in.
pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// Of a modern request: what its client can be asked for.
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// Of a modern request: who its client says it is.
pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// Of a modern request: the least severe log level wanted while it is under way.
pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// Of a modern result: who the server says it is.
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// Of each message of a subscription: the id of the `subscriptions/listen` that opened it.
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
/// Of 2025-11-25: the task a message belongs to.
pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";
/// Of a question of a server to the kernel: the id of the request, as the server read it, in the course
/// of which it asks. No client reads it.
pub const RELATED_CALL: &str = "mgp/relatedRequestId";
/// Id of the tasks extension, in `extensions` of both capability objects.
pub const TASKS: &str = "io.modelcontextprotocol/tasks";

/// `params._meta` as far as the kernel reads it.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Meta<'a> {
    /// The sender would like `notifications/progress` with this token.
    #[serde(borrow, default, rename = "progressToken")]
    pub progress_token: Option<&'a RawValue>,
    /// [`PROTOCOL_VERSION`]; a JSON string when the sender keeps the rules.
    #[serde(borrow, default, rename = "io.modelcontextprotocol/protocolVersion")]
    pub protocol_version: Option<&'a RawValue>,
    /// [`CLIENT_CAPABILITIES`].
    #[serde(borrow, default, rename = "io.modelcontextprotocol/clientCapabilities")]
    pub client_capabilities: Option<&'a RawValue>,
    /// [`CLIENT_INFO`]: a claim, shown to people.
    #[serde(borrow, default, rename = "io.modelcontextprotocol/clientInfo")]
    pub client_info: Option<&'a RawValue>,
    /// [`LOG_LEVEL`].
    #[serde(borrow, default, rename = "io.modelcontextprotocol/logLevel")]
    pub log_level: Option<&'a RawValue>,
}

impl<'a> Meta<'a> {
    /// Reads `_meta`; none is empty. What the kernel cannot read, a server may: it could find there
    /// another token, or another version, than the kernel puts in.
    ///
    /// # Errors
    /// [`Refusal::BadParams`]: it is no object, or a key that the kernel reads stands in it twice.
    pub fn parse(raw: Option<&'a RawValue>) -> Result<Self, Refusal> {
        let Some(raw) = raw else {
            return Ok(Self::default());
        };
        lookalike::from_object(raw.get())
            .map_err(|e| Refusal::BadParams(format!("`_meta`: {}", lookalike::strip_position(&e))))
    }

    /// True when the request means to be a modern one, whole or not: a malformed one must get the
    /// errors of its era.
    #[must_use]
    pub fn is_stateless(&self) -> bool {
        self.protocol_version.is_some() || self.client_capabilities.is_some()
    }
}

/// `params` that carry only `_meta` for the kernel.
#[derive(Debug, Default, Deserialize)]
pub struct WithMeta<'a> {
    /// Verbatim.
    #[serde(borrow, default, rename = "_meta")]
    pub meta: Option<&'a RawValue>,
}

/// The progress token in params, borrowed from them.
///
/// # Errors
/// For a `_meta` that a server may read otherwise than the kernel.
pub fn progress_token(params: &str) -> Result<Option<&RawValue>, Refusal> {
    let with: WithMeta<'_> =
        lookalike::from_object(params).map_err(|error| Refusal::BadParams(error.to_string()))?;
    Ok(Meta::parse(with.meta)?.progress_token)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel would read one of the two, a server the other.
    #[test]
    fn no_key_that_is_read_stands_twice() {
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

    /// A renamed member and its constant are two texts: here they meet.
    #[test]
    fn each_member_is_read_under_its_constant() {
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
