//! A generation of an HTTP server: detects its protocol families and transport.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use mgp_protocol::dialect::ProtocolFamily;
use mgp_protocol::jsonrpc::{self, Message};
use mgp_protocol::refusal::Refusal;
use mgp_transports::http::client::SseEvents;

use super::ServerGeneration;
use super::end::End;
use super::handshake::{
    self, DISCOVER, DiscoverOutcome, HandshakeError, PROBE_TIMEOUT, no_version_message,
};
use crate::link::{DetectedTransport, HttpTarget, HttpWire, Link, Peer, SseWire, Wire};
use crate::login::ServerClient;
use crate::server::protocol_families::SpokenFamilies;
use mgp_callers::request::Outcome;

/// A server detected at a URL.
struct DetectedServer {
    /// Its declaration in the stateless family.
    stateless: Option<Box<Peer>>,
    wire: DetectedWire,
}

enum DetectedWire {
    /// Streamable HTTP; with the result of `initialize` if the server speaks the legacy family.
    Streamable(Arc<HttpWire>, Option<Bytes>),
    Sse(Arc<SseWire>, Box<SseEvents>),
}

impl ServerGeneration {
    /// Runs a generation of the server at `url`.
    pub(in crate::server) async fn run_remote(
        &self,
        url: &str,
        headers: &BTreeMap<String, String>,
    ) -> End {
        let login = self
            .connector
            .logins
            .login_for(&self.spec, self.handle.agent());
        if let Some(login) = &login {
            login.begin_generation().await;
        }
        let client = ServerClient::new(self.connector.client.clone(), login);
        let end = self.connect_and_run(&client, url, headers).await;
        match (end, client.park_reason()) {
            // A retry would fail the same way: a person has to sign in.
            (End::Failed(_) | End::SessionEnded(_), Some(why)) => End::Rejected(why),
            (end, _) => end,
        }
    }

    async fn connect_and_run(
        &self,
        client: &ServerClient,
        url: &str,
        headers: &BTreeMap<String, String>,
    ) -> End {
        let headers = match to_header_map(headers) {
            Ok(headers) => headers,
            Err(why) => return End::Failed(why),
        };
        let target = HttpTarget {
            client,
            url,
            headers: &headers,
            limit: self.spec.limits.max_frame,
        };
        let known = self.handle.take_families();
        let detection =
            tokio::time::timeout(self.spec.limits.start_timeout, self.detect(target, known));
        let outcome = tokio::select! {
            outcome = detection => outcome,
            end = self.wait_for_stop() => return end,
        };
        match outcome {
            Err(_) => End::Failed(self.startup_timeout_message()),
            Ok(Err(why)) => End::Failed(why),
            Ok(Ok(DetectedServer {
                stateless: modern,
                wire,
            })) => match wire {
                DetectedWire::Streamable(wire, initialize) => {
                    self.run_streamable(wire, modern, initialize).await
                }
                DetectedWire::Sse(wire, stream) => self.run_sse(wire, stream).await,
            },
        }
    }

    /// Detects the protocol families of the server. `known` are those of its last connection.
    async fn detect(
        &self,
        target: HttpTarget<'_>,
        known: Option<SpokenFamilies>,
    ) -> Result<DetectedServer, String> {
        match known {
            Some(SpokenFamilies::Legacy) => self.detect_legacy(target, None).await,
            Some(SpokenFamilies::Stateless) => match self.discover(target).await? {
                DiscoverOutcome::Stateless(peer) | DiscoverOutcome::OnlyStateless(peer) => {
                    self.detect_stateless(target, peer, false).await
                }
                DiscoverOutcome::Other(why) => Err(format!(
                    "{DISCOVER}: {}",
                    why.unwrap_or_else(|| "it no longer answers this way".into())
                )),
            },
            Some(SpokenFamilies::Dual) | None => self.probe(target).await,
        }
    }

    async fn probe(&self, target: HttpTarget<'_>) -> Result<DetectedServer, String> {
        let mut discover = Box::pin(self.discover(target));
        let found = match tokio::time::timeout(PROBE_TIMEOUT, &mut discover).await {
            Ok(found) => found?,
            Err(_silent) => {
                let mut initialize = Box::pin(self.detect_legacy(target, None));
                tokio::select! {
                    biased;
                    found = &mut discover => match found? {
                        DiscoverOutcome::Other(_) => return initialize.await,
                        modern @ (DiscoverOutcome::Stateless(_) | DiscoverOutcome::OnlyStateless(_)) => modern,
                    },
                    outcome = &mut initialize => match outcome {
                        Ok(outcome) => return Ok(outcome),
                        Err(why) => match discover.await? {
                            DiscoverOutcome::Other(_) => return Err(why),
                            modern @ (DiscoverOutcome::Stateless(_) | DiscoverOutcome::OnlyStateless(_)) => modern,
                        },
                    },
                }
            }
        };
        match found {
            DiscoverOutcome::Stateless(peer) => self.detect_stateless(target, peer, true).await,
            DiscoverOutcome::OnlyStateless(peer) => {
                self.detect_stateless(target, peer, false).await
            }
            DiscoverOutcome::Other(why) => self.detect_legacy(target, why).await,
        }
    }

    /// Sends `server/discover`, a second time if the server offered our version.
    async fn discover(&self, target: HttpTarget<'_>) -> Result<DiscoverOutcome, String> {
        let Some(answer) = self.request_stateless(target).await? else {
            return Ok(DiscoverOutcome::Other(None));
        };
        let Some(offer) = handshake::parse_version_offer(&answer) else {
            return Ok(handshake::interpret_discover_answer(answer));
        };
        let again = self.request_stateless(target).await?;
        Ok(offer.resolve(again.map_or(
            DiscoverOutcome::Other(None),
            handshake::interpret_discover_answer,
        )))
    }

    /// Sends a stateless request. A server that closes the connection at an unknown request does not speak the
    /// stateless family.
    async fn request_stateless(&self, target: HttpTarget<'_>) -> Result<Option<Outcome>, String> {
        let settings = self.link_settings();
        let meta = crate::link::kernel_params(
            None,
            &self.connector.version,
            settings.offer_mgp,
            &settings.client_extensions,
        );
        let frame = jsonrpc::request("0", DISCOVER, Some(&meta));
        match target.request_stateless(DISCOVER, frame.into()).await {
            Ok(answer) => Ok(answer.as_ref().map(parse_outcome)),
            Err(error) if error.has_no_answer() => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Detects a stateless server; with `both` it is also probed for the legacy family.
    async fn detect_stateless(
        &self,
        target: HttpTarget<'_>,
        peer: Box<Peer>,
        both: bool,
    ) -> Result<DetectedServer, String> {
        let mut detected = None;
        if both
            && let Ok(Ok((wire, answer))) =
                tokio::time::timeout(PROBE_TIMEOUT, target.initialize(self.initialize_frame()))
                    .await
            && let Ok(result) = parse_outcome(&answer)
            && handshake::parse_initialize_result(&result).is_ok()
        {
            detected = Some(DetectedWire::Streamable(wire, Some(result)));
        }
        let wire = match detected {
            Some(detected) => detected,
            None => DetectedWire::Streamable(target.wire(None).map_err(|e| e.to_string())?, None),
        };
        Ok(DetectedServer {
            stateless: Some(peer),
            wire,
        })
    }

    /// Sends `initialize`, over either transport. `modern` is the reason why the stateless family failed.
    async fn detect_legacy(
        &self,
        target: HttpTarget<'_>,
        modern: Option<String>,
    ) -> Result<DetectedServer, String> {
        let opened = target.open(self.initialize_frame()).await;
        let wire = match opened {
            Ok(DetectedTransport::Streamable { wire, answer }) => {
                let result = parse_outcome(&answer).map_err(|error| {
                    let error_text = if let Refusal::Peer(error) = &error {
                        error.get().to_owned()
                    } else {
                        error.to_string()
                    };
                    no_version_message(modern.clone(), &error_text)
                })?;
                DetectedWire::Streamable(wire, Some(result))
            }
            Ok(DetectedTransport::Sse { wire, stream }) => DetectedWire::Sse(wire, stream),
            Err(error) => {
                return Err(match modern {
                    Some(_) => no_version_message(modern, &error),
                    None => error.to_string(),
                });
            }
        };
        Ok(DetectedServer {
            stateless: None,
            wire,
        })
    }

    fn initialize_frame(&self) -> Bytes {
        let consents = self.spec.limits.consents;
        let params =
            handshake::initialize_params(&self.connector.version, &self.link_settings(), consents);
        jsonrpc::request("0", "initialize", Some(&params)).into()
    }

    async fn run_streamable(
        &self,
        wire: Arc<HttpWire>,
        modern: Option<Box<Peer>>,
        initialize: Option<Bytes>,
    ) -> End {
        wire.set_forwarded_headers(&self.spec.pass_headers);
        let link = self.build_link(Wire::Http(wire.clone()));
        if let Some(peer) = modern {
            link.set_peer(*peer);
        }
        let handshake_future = async {
            if let Some(result) = initialize {
                handshake::complete_legacy(&link, &result).await?;
                let stream = wire.clone().listen(link.clone());
                drop(link.spawn_link_task("server.stream", stream).detach());
            }
            spoken_families(&link).ok_or_else(|| HandshakeError::Failed("it speaks no MCP".into()))
        };
        let end = Box::pin(self.serve(&link, handshake_future)).await;
        let end = end.refine_by_session(wire.is_session_ended());
        self.close_link(&link, &end);
        let _ = tokio::time::timeout(self.spec.limits.stop_grace, wire.delete()).await;
        end
    }

    async fn run_sse(&self, wire: Arc<SseWire>, stream: Box<SseEvents>) -> End {
        let link = self.build_link(Wire::Sse(wire.clone()));
        let listening = wire.clone().listen(link.clone(), stream);
        let listening = link.spawn_link_task("server.stream", listening);
        let handshake_future =
            async { Ok(handshake::handshake_legacy(&link, &self.connector.version).await?) };
        let end = Box::pin(self.serve(&link, handshake_future)).await;
        let end = end.refine_by_session(wire.is_session_ended());
        self.close_link(&link, &end);
        listening.abort();
        end
    }
}

fn spoken_families(link: &Link) -> Option<SpokenFamilies> {
    let speaks = |family| link.peer_for(family).is_some();
    match (
        speaks(ProtocolFamily::Legacy),
        speaks(ProtocolFamily::Stateless),
    ) {
        (true, true) => Some(SpokenFamilies::Dual),
        (true, false) => Some(SpokenFamilies::Legacy),
        (false, true) => Some(SpokenFamilies::Stateless),
        (false, false) => None,
    }
}

/// The result or error in an answer's frame.
fn parse_outcome(answer: &Bytes) -> Outcome {
    match jsonrpc::parse(answer) {
        Ok(Message::Response { outcome, .. }) => outcome
            .map(|result| answer.slice_ref(result.get().as_bytes()))
            .map_err(|error| Refusal::Peer(error.to_owned())),
        Ok(_) | Err(_) => Err(Refusal::Internal("it was not answered".into())),
    }
}

/// Builds a header map. Header values are secrets, so an error names only the header.
pub(super) fn to_header_map(
    headers: &std::collections::BTreeMap<String, String>,
) -> Result<HeaderMap, String> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let key: HeaderName = name
            .parse()
            .map_err(|_| format!("headers: {name:?} is no header name"))?;
        let mut value = HeaderValue::from_str(value).map_err(|_| {
            format!("headers: the value of {name} has a character HTTP does not allow")
        })?;
        value.set_sensitive(true);
        map.insert(key, value);
    }
    Ok(map)
}
