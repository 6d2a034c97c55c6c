//! Detects the protocol families of a server, and completes the handshake in each (MCP versioning, backward
//! compatibility).

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use mgp_engine::servers::consent::ConsentPolicy;
use mgp_json::{lookalike, quote};
use mgp_protocol::dialect::{ProtocolFamily, Version};
use mgp_protocol::mcp::extensions::with_extensions;
use mgp_protocol::mcp::server::{Discover, DiscoverResult};
use mgp_protocol::mcp::{self, InitializeResult, Method, ServerCapabilities};
use mgp_protocol::mcpl;
use mgp_protocol::mgp::negotiation::Negotiated;
use mgp_protocol::refusal::Refusal;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::early_exit::EarlyExit;
use crate::link::{Link, LinkSettings, Peer, Wire};
use crate::negotiation;
use crate::server::protocol_families::SpokenFamilies;
use mgp_callers::negotiation::OFFERED_FEATURES;
use mgp_callers::request::Outcome;

/// How long a server may leave the probe of one family unanswered before the other is probed as well. Any later
/// answer counts, so a slow start does no harm. A legacy server that ignores unknown requests costs this time
/// once.
pub(in crate::server) const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

pub(in crate::server) const DISCOVER: &str = Discover::METHOD;

/// Error codes that only a stateless server sends.
const STATELESS_ERRORS: std::ops::RangeInclusive<i64> = UNSUPPORTED_VERSION..=-32020;

/// The error code for an unsupported version.
const UNSUPPORTED_VERSION: i64 = -32022;

/// Why the handshake failed.
#[derive(Debug)]
pub(in crate::server) enum HandshakeError {
    /// The reason, as text.
    Failed(String),
    /// The server may not run; the reason, as text.
    Rejected(String),
    /// The server must be restarted with these families.
    Retry(SpokenFamilies),
}

impl From<String> for HandshakeError {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

/// The meaning of an answer to `server/discover`.
#[derive(Debug)]
pub(in crate::server) enum DiscoverOutcome {
    /// It supports our stateless version.
    Stateless(Box<Peer>),
    /// It supports our stateless version, and no legacy version.
    OnlyStateless(Box<Peer>),
    /// It does not; `initialize` may work. If it is stateless with other versions, the text says so.
    Other(Option<String>),
}

/// Client capabilities that the kernel can forward to some client.
const CAPABILITIES: &str =
    r#"{"roots":{"listChanged":true},"sampling":{},"elicitation":{"form":{},"url":{}}}"#;

/// `params` of `initialize`. The declaration covers all capabilities that some client may have, because a shared
/// server gets it once; a callback that the client cannot answer is refused. Disabled callbacks are not declared
/// (CMCP-084).
#[must_use]
pub(in crate::server) fn initialize_params(
    version: &str,
    settings: &LinkSettings,
    consents: ConsentPolicy,
) -> String {
    let capabilities = consents.allowed_capabilities(CAPABILITIES);
    let capabilities = negotiation::declare_capabilities(
        &with_extensions(&capabilities, &settings.client_extensions),
        ProtocolFamily::Legacy,
        settings.offer_mgp,
    );
    let capabilities = if settings.offer_mcpl {
        mcpl::negotiation::with_declaration(&capabilities, mcpl::negotiation::HOST_DECLARATION)
    } else {
        capabilities
    };
    format!(
        r#"{{"protocolVersion":"{}","capabilities":{},"clientInfo":{{"name":"mgp","title":"MGP kernel","version":{}}}}}"#,
        Version::LATEST_LEGACY,
        capabilities,
        quote(version)
    )
}

/// Completes the handshake with a child. `known` are the families of its last connection.
///
/// # Errors
/// [`HandshakeError`].
pub(in crate::server) async fn handshake_child(
    link: &Arc<Link>,
    version: &str,
    known: Option<SpokenFamilies>,
    early_exit: &EarlyExit,
) -> Result<SpokenFamilies, HandshakeError> {
    let families = match known {
        None => probe(link, version, early_exit).await?,
        Some(SpokenFamilies::Legacy) => handshake_legacy(link, version).await?,
        Some(SpokenFamilies::Stateless) => handshake_stateless(link).await?,
        Some(SpokenFamilies::Dual) => {
            handshake_stateless(link).await?;
            handshake_legacy(link, version).await?;
            confirm_stateless(link, SpokenFamilies::Dual).await?
        }
    };
    early_exit.set_assumed(None);
    Ok(families)
}

/// Probes the stateless family first, then the legacy one.
async fn probe(
    link: &Arc<Link>,
    version: &str,
    early_exit: &EarlyExit,
) -> Result<SpokenFamilies, HandshakeError> {
    early_exit.set_assumed(Some(SpokenFamilies::Legacy));
    let params = initialize_params(version, link.settings(), link.limits.consents);
    let mut discover = Box::pin(discover(link));
    // Sent when the future is first polled.
    let mut initialize = pin!(link.request_in(ProtocolFamily::Legacy, "initialize", Some(&params)));
    let found = match tokio::time::timeout(PROBE_TIMEOUT, &mut discover).await {
        Ok(found) => found?,
        Err(_silent) => tokio::select! {
            biased;
            found = &mut discover => found?,
            answer = &mut initialize => match answer {
                Ok(result) => {
                    drop(discover);
                    complete_legacy(link, &result).await?;
                    return Ok(SpokenFamilies::Legacy);
                }
                Err(refused) => match discover.await? {
                    DiscoverOutcome::Stateless(peer) | DiscoverOutcome::OnlyStateless(peer) => {
                        link.set_peer(*peer);
                        return Ok(SpokenFamilies::Stateless);
                    }
                    DiscoverOutcome::Other(why) => return Err(no_version_message(why, &refused).into()),
                },
            },
        },
    };
    match found {
        DiscoverOutcome::Other(why) => {
            let result = initialize.await.map_err(|e| no_version_message(why, &e))?;
            complete_legacy(link, &result).await?;
            Ok(SpokenFamilies::Legacy)
        }
        DiscoverOutcome::OnlyStateless(peer) => {
            link.set_peer(*peer);
            Ok(SpokenFamilies::Stateless)
        }
        DiscoverOutcome::Stateless(peer) => {
            link.set_peer(*peer);
            early_exit.set_assumed(Some(SpokenFamilies::Stateless));
            match tokio::time::timeout(PROBE_TIMEOUT, initialize).await {
                Ok(Err(_)) => Ok(SpokenFamilies::Stateless),
                Ok(Ok(result)) => {
                    let both = complete_legacy(link, &result).await;
                    confirm_stateless(
                        link,
                        both.map_or(SpokenFamilies::Stateless, |()| SpokenFamilies::Dual),
                    )
                    .await
                }
                Err(_silent) => confirm_stateless(link, SpokenFamilies::Stateless).await,
            }
        }
    }
}

/// Sends `server/discover`, a second time if the server offered our version (MCP versioning: the client
/// retries).
async fn discover(link: &Arc<Link>) -> Result<DiscoverOutcome, HandshakeError> {
    let ask = || link.request_in(ProtocolFamily::Stateless, DISCOVER, None);
    let answer = ask().await;
    match parse_version_offer(&answer) {
        Some(offer) => Ok(offer.resolve(read_discover_answer(ask().await)?)),
        None => read_discover_answer(answer),
    }
}

/// Reads an answer of the server itself; other outcomes reveal nothing about its families.
fn read_discover_answer(answer: Outcome) -> Result<DiscoverOutcome, HandshakeError> {
    match answer {
        Ok(_) => Ok(interpret_discover_answer(answer)),
        Err(ref refusal) if refusal.is_answer() => Ok(interpret_discover_answer(answer)),
        Err(trouble) => Err(HandshakeError::Failed(format!("{DISCOVER}: {trouble}"))),
    }
}

/// Checks that the server is still alive. Some servers leave the stateless family at `initialize`: such a server
/// is restarted, and never sent `initialize` again.
async fn confirm_stateless(
    link: &Arc<Link>,
    families: SpokenFamilies,
) -> Result<SpokenFamilies, HandshakeError> {
    match interpret_discover_answer(
        link.request_in(ProtocolFamily::Stateless, DISCOVER, None)
            .await,
    ) {
        DiscoverOutcome::Stateless(_) | DiscoverOutcome::OnlyStateless(_) => Ok(families),
        DiscoverOutcome::Other(_) => Err(HandshakeError::Retry(SpokenFamilies::Stateless)),
    }
}

/// Completes the handshake with a server that is known to be stateless.
///
/// # Errors
/// What went wrong, as text.
pub(in crate::server) async fn handshake_stateless(
    link: &Arc<Link>,
) -> Result<SpokenFamilies, String> {
    let answer = link
        .request_in(ProtocolFamily::Stateless, DISCOVER, None)
        .await;
    let error = answer.as_ref().err().map(ToString::to_string);
    match interpret_discover_answer(answer) {
        DiscoverOutcome::Stateless(peer) | DiscoverOutcome::OnlyStateless(peer) => {
            link.set_peer(*peer);
            Ok(SpokenFamilies::Stateless)
        }
        DiscoverOutcome::Other(why) => {
            let why = why.or(error).unwrap_or_else(|| "no such answer".into());
            Err(format!("{DISCOVER}: {why}"))
        }
    }
}

/// Completes the legacy handshake: `initialize`, its answer, `notifications/initialized`.
///
/// # Errors
/// What went wrong, as text.
pub(in crate::server) async fn handshake_legacy(
    link: &Arc<Link>,
    version: &str,
) -> Result<SpokenFamilies, String> {
    let params = initialize_params(version, link.settings(), link.limits.consents);
    let answer = link
        .request_in(ProtocolFamily::Legacy, "initialize", Some(&params))
        .await
        .map_err(|e| format!("initialize: {e}"))?;
    complete_legacy(link, &answer).await?;
    Ok(SpokenFamilies::Legacy)
}

/// Reads the result of `initialize` and sends `notifications/initialized`.
///
/// # Errors
/// What is wrong with the answer, as text.
pub(in crate::server) async fn complete_legacy(
    link: &Arc<Link>,
    result: &[u8],
) -> Result<(), String> {
    link.set_peer(parse_initialize_result(result)?);
    let ready = mgp_protocol::jsonrpc::notification("notifications/initialized", None);
    match link.wire() {
        Wire::Http(http) => http
            .post_and_wait(ready.into())
            .await
            .map_err(|e| format!("notifications/initialized: {e}"))?,
        Wire::Child(_) | Wire::Sse(_) | Wire::Node(_) | Wire::Lite(_) => {
            link.notify("notifications/initialized", None);
        }
    }
    link.report_mcpl_connected();
    Ok(())
}

/// Parses the result of `initialize`.
///
/// # Errors
/// What is wrong with it, as text.
pub(in crate::server) fn parse_initialize_result(result: &[u8]) -> Result<Peer, String> {
    let result = std::str::from_utf8(result).unwrap_or("");
    let result: InitializeResult<'_> =
        mcp::parse_params(Some(result)).map_err(|e| format!("the answer to initialize: {e}"))?;
    let version = Version::parse(&result.protocol_version)
        .filter(|v| v.is_legacy())
        .ok_or_else(|| {
            format!(
                "it speaks MCP {}, which no `initialize` can agree on",
                result.protocol_version
            )
        })?;
    Ok(Peer {
        version,
        capabilities: ServerCapabilities::parse(result.capabilities),
        raw_capabilities: as_object(result.capabilities).into(),
        info: result.server_info.map(|i| i.get().into()),
        instructions: result.instructions.as_deref().map(Into::into),
        mgp: Negotiated::from_capabilities(
            OFFERED_FEATURES,
            result.capabilities,
            ProtocolFamily::Legacy,
        ),
        mcpl: None,
    })
}

/// Capabilities as an object: some languages write an empty one as `[]`.
fn as_object(capabilities: Option<&RawValue>) -> &str {
    let capabilities = capabilities.map_or("{}", |capabilities| capabilities.get());
    if capabilities.starts_with('{') {
        capabilities
    } else {
        "{}"
    }
}

/// Interprets the answer to `server/discover`. Only a result with our version comes from a usable stateless
/// server; after any error `initialize` is tried.
pub(in crate::server) fn interpret_discover_answer(answer: Outcome) -> DiscoverOutcome {
    match answer {
        Ok(result) => parse_discover_result(&result),
        Err(refusal) => {
            let error = refusal.relayed_error();
            let error: Option<HandshakeErrorObject> =
                error.and_then(|error| lookalike::from_object(error).ok());
            let modern = error.filter(|error| STATELESS_ERRORS.contains(&error.code));
            DiscoverOutcome::Other(
                modern.map(|error| format!("{} ({})", error.message, error.code)),
            )
        }
    }
}

/// The versions in an error for our version, if ours is among them.
#[derive(Debug)]
pub(in crate::server) struct VersionOffer {
    legacy: bool,
}

impl VersionOffer {
    /// Combines the offer with the answer to the second attempt. The error lists all versions a server supports,
    /// while the result of `server/discover` lists only those usable in requests.
    pub(in crate::server) fn resolve(&self, found: DiscoverOutcome) -> DiscoverOutcome {
        match found {
            DiscoverOutcome::Stateless(peer) if !self.legacy => {
                DiscoverOutcome::OnlyStateless(peer)
            }
            found @ (DiscoverOutcome::Stateless(_)
            | DiscoverOutcome::OnlyStateless(_)
            | DiscoverOutcome::Other(_)) => found,
        }
    }
}

/// Parses the offer in an error that refuses our version and yet lists it.
pub(in crate::server) fn parse_version_offer(answer: &Outcome) -> Option<VersionOffer> {
    let Err(Refusal::Peer(error)) = answer else {
        return None;
    };
    let error_object: HandshakeErrorObject = lookalike::from_object(error.get()).ok()?;
    if error_object.code != UNSUPPORTED_VERSION {
        return None;
    }
    let supported: Supported = serde_json::from_str(error_object.data?.get()).ok()?;
    let versions = || supported.supported.iter().map(|v| Version::parse(v));
    versions()
        .any(|v| v == Some(Version::STATELESS))
        .then(|| VersionOffer {
            legacy: versions().flatten().any(Version::is_legacy),
        })
}

#[derive(Deserialize)]
struct HandshakeErrorObject {
    code: i64,
    #[serde(default)]
    message: String,
    data: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Supported {
    supported: Vec<String>,
}

fn parse_discover_result(result: &[u8]) -> DiscoverOutcome {
    let text = std::str::from_utf8(result).unwrap_or("");
    let Ok(result) = mcp::parse_params::<DiscoverResult<'_>>(Some(text)) else {
        return DiscoverOutcome::Other(None);
    };
    let ours = Version::STATELESS.as_str();
    if !result.supported_versions.iter().any(|v| v == ours) {
        let theirs = result.supported_versions.join(", ");
        return DiscoverOutcome::Other(Some(format!("it speaks MCP {theirs}, not {ours}")));
    }
    DiscoverOutcome::Stateless(Box::new(Peer {
        version: Version::STATELESS,
        capabilities: ServerCapabilities::parse(result.capabilities),
        raw_capabilities: as_object(result.capabilities).into(),
        info: result.server_info().map(|i| i.get().into()),
        instructions: result.instructions.as_deref().map(Into::into),
        mgp: Negotiated::from_capabilities(
            OFFERED_FEATURES,
            result.capabilities,
            ProtocolFamily::Stateless,
        ),
        mcpl: None,
    }))
}

/// The error message if neither family works.
pub(in crate::server) fn no_version_message(
    modern: Option<String>,
    legacy: &impl std::fmt::Display,
) -> String {
    match modern {
        Some(why) => format!("{DISCOVER}: {why}; initialize: {legacy}"),
        None => format!("initialize: {legacy}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::scripted::ScriptedServer;
    use bytes::Bytes;
    use mgp_engine::servers::spec::CallbackAttribution;

    /// MCPL-029, MCPL-004: the host declares MCPL under `experimental`, beside MCP's own capabilities; an entry
    /// with `mcpl = false` offers nothing.
    #[test]
    fn mcpl_is_offered_under_experimental() {
        let params = |(offer_mgp, offer_mcpl)| -> serde_json::Value {
            let settings = LinkSettings {
                offer_mgp,
                offer_mcpl,
                attribution: CallbackAttribution::ByTurn,
                client_extensions: r#"{"com.example/x":{}}"#.into(),
                audit: mgp_store::audit::AuditHandle::disabled(),
                interceptors: None,
            };
            let params = initialize_params("1", &settings, ConsentPolicy::default());
            serde_json::from_str(&params).unwrap()
        };
        let told = &params((true, true))["capabilities"]["extensions"];
        assert!(told["com.example/x"].is_object() && told["dev.cloto/mgp"].is_object());
        let whole = params((true, true));
        let mcpl = &whole["capabilities"]["experimental"]["mcpl"];
        assert_eq!(
            (&mcpl["version"], &mcpl["featureSets"]),
            (&"0.4".into(), &true.into())
        );
        assert!(whole["capabilities"]["experimental"]["mgp"].is_object());
        assert_eq!(whole["protocolVersion"], Version::LATEST_LEGACY.as_str());
        let without = params((true, false));
        assert!(
            without["capabilities"]["experimental"]
                .get("mcpl")
                .is_none()
        );
        assert!(
            params((false, false))["capabilities"]
                .get("experimental")
                .is_none()
        );
    }

    fn refused(code: i64) -> Outcome {
        let error = format!(r#"{{"code":{code},"message":"no"}}"#);
        Err(Refusal::Peer(RawValue::from_string(error).unwrap()))
    }

    /// Versioning, "Backward Compatibility": detection does not depend on a single error code.
    #[test]
    fn only_result_with_our_version_is_stateless() {
        let ours = br#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"instructions":"i","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"n"}}}"#;
        let DiscoverOutcome::Stateless(peer) =
            interpret_discover_answer(Ok(Bytes::from_static(ours)))
        else {
            panic!("it is modern");
        };
        assert!(peer.capabilities.tools && !peer.capabilities.prompts);
        assert_eq!(peer.info.as_deref(), Some(r#"{"name":"n"}"#));
        let later = Bytes::from_static(br#"{"supportedVersions":["2027-01-01"]}"#);
        assert!(matches!(
            interpret_discover_answer(Ok(later)),
            DiscoverOutcome::Other(Some(_))
        ));
        let odd = Bytes::from_static(b"{}");
        assert!(matches!(
            interpret_discover_answer(Ok(odd)),
            DiscoverOutcome::Other(None)
        ));
        for code in [-32601, -32602, -32000, -32023] {
            assert!(
                matches!(
                    interpret_discover_answer(refused(code)),
                    DiscoverOutcome::Other(None)
                ),
                "{code}"
            );
        }
        for code in [-32020, -32021, -32022] {
            assert!(
                matches!(
                    interpret_discover_answer(refused(code)),
                    DiscoverOutcome::Other(Some(_))
                ),
                "{code}"
            );
        }
    }

    const DISCOVERED: &str =
        r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{}}"#;
    const OFFERED: &str =
        r#"{"code":-32022,"message":"no","data":{"supported":["2026-07-28"],"requested":"?"}}"#;
    const HELLO: &str = r#"{"protocolVersion":"2025-06-18","capabilities":{}}"#;

    /// Runs the handshake with a server that gives these answers in order; returns its requests and the outcome.
    async fn run_handshake(
        script: &[(&str, &str)],
    ) -> (Vec<String>, Result<SpokenFamilies, HandshakeError>) {
        let mut server = ScriptedServer::new();
        let (link, early_exit) = (server.link.clone(), EarlyExit::default());
        let handshake =
            tokio::spawn(async move { handshake_child(&link, "1.0", None, &early_exit).await });
        let mut methods = Vec::new();
        for (outcome, value) in script {
            let mut request = server.next_message().await;
            while request["id"].is_null() {
                request = server.next_message().await;
            }
            methods.push(request["method"].as_str().unwrap().to_owned());
            server.answer(&request, outcome, &serde_json::from_str(value).unwrap());
        }
        (methods, handshake.await.unwrap())
    }

    /// The stateless probe comes first; `initialize` shows whether both families are supported.
    #[tokio::test]
    async fn servers_are_detected_in_their_families() {
        let rejected = ("error", r#"{"code":-32601,"message":"no"}"#);
        let (discovered, initialized) = (("result", DISCOVERED), ("result", HELLO));
        let (methods, families) = run_handshake(&[rejected, initialized]).await;
        assert_eq!(methods, ["server/discover", "initialize"]);
        assert!(matches!(families, Ok(SpokenFamilies::Legacy)));
        let (_, families) = run_handshake(&[discovered, rejected]).await;
        assert!(matches!(families, Ok(SpokenFamilies::Stateless)));
        let (methods, families) = run_handshake(&[discovered, initialized, discovered]).await;
        assert_eq!(
            methods,
            ["server/discover", "initialize", "server/discover"]
        );
        assert!(matches!(families, Ok(SpokenFamilies::Dual)));
        let (_, families) = run_handshake(&[discovered, initialized, rejected]).await;
        assert!(matches!(
            families,
            Err(HandshakeError::Retry(SpokenFamilies::Stateless))
        ));
        let ours = ("error", OFFERED);
        let (methods, families) = run_handshake(&[ours, discovered]).await;
        assert_eq!(methods, ["server/discover", "server/discover"]);
        assert!(matches!(families, Ok(SpokenFamilies::Stateless)));
        let (methods, families) = run_handshake(&[ours, ours, initialized]).await;
        assert_eq!(
            methods,
            ["server/discover", "server/discover", "initialize"]
        );
        assert!(matches!(families, Ok(SpokenFamilies::Legacy)));
        let later = ("error", r#"{"code":-32022,"message":"only 2027-01-01"}"#);
        let (_, families) = run_handshake(&[later, rejected]).await;
        let Err(HandshakeError::Failed(why)) = families else {
            panic!("nothing is spoken there");
        };
        assert!(
            why.contains("only 2027-01-01") && why.contains("initialize"),
            "{why}"
        );
    }
}
