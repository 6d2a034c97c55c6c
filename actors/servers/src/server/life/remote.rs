//! One life of a server reached over HTTP: finds its eras and its transport.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use mgp_protocol::dialect::Era;
use mgp_protocol::jsonrpc::{self, Message};
use mgp_protocol::refusal::Refusal;
use mgp_transports::http::client::SseEvents;

use super::ServerLife;
use super::end::End;
use super::handshake::{self, DISCOVER, Found, HandshakeError, PROBE, unspoken};
use crate::link::{HttpEndpoint, HttpWire, Link, Opened, Peer, SseWire, Wire};
use crate::login::ServerClient;
use crate::server::spoken::SpokenEras;
use mgp_callers::request::Outcome;

/// A server found at a URL.
struct Met {
    /// What it declared in the modern era.
    modern: Option<Box<Peer>>,
    wire: MetWire,
}

enum MetWire {
    /// Streamable HTTP; with the result of `initialize` where the server speaks the legacy era.
    Streamable(Arc<HttpWire>, Option<Bytes>),
    Sse(Arc<SseWire>, Box<SseEvents>),
}

impl ServerLife {
    /// A life of the server at `url`.
    pub(in crate::server) async fn remote(
        &self,
        url: &str,
        headers: &BTreeMap<String, String>,
    ) -> End {
        let login = self.connector.logins.of(&self.spec, self.handle.agent());
        if let Some(login) = &login {
            login.begins().await;
        }
        let client = ServerClient::new(self.connector.client.clone(), login);
        let end = self.reached(&client, url, headers).await;
        match (end, client.parked()) {
            // Trying again would ask for the same: a person has to sign in.
            (End::Failed(_) | End::SessionEnded(_), Some(why)) => End::Rejected(why),
            (end, _) => end,
        }
    }

    async fn reached(
        &self,
        client: &ServerClient,
        url: &str,
        headers: &BTreeMap<String, String>,
    ) -> End {
        let headers = match header_map(headers) {
            Ok(headers) => headers,
            Err(why) => return End::Failed(why),
        };
        let place = HttpEndpoint {
            client,
            url,
            headers: &headers,
            limit: self.spec.limits.max_frame,
        };
        let known = self.handle.take_spoken();
        let meeting = tokio::time::timeout(self.spec.limits.start_timeout, self.meet(place, known));
        let met = tokio::select! {
            met = meeting => met,
            end = self.ordered() => return end,
        };
        match met {
            Err(_) => End::Failed(self.too_slow()),
            Ok(Err(why)) => End::Failed(why),
            Ok(Ok(Met { modern, wire })) => match wire {
                MetWire::Streamable(wire, hello) => self.streamable(wire, modern, hello).await,
                MetWire::Sse(wire, stream) => self.old_style(wire, stream).await,
            },
        }
    }

    /// Finds out which eras the server speaks. `known` are those it spoke last.
    async fn meet(
        &self,
        place: HttpEndpoint<'_>,
        known: Option<SpokenEras>,
    ) -> Result<Met, String> {
        match known {
            Some(SpokenEras::Legacy) => self.hello(place, None).await,
            Some(SpokenEras::Modern) => match self.discover(place).await? {
                Found::Modern(peer) | Found::OnlyModern(peer) => {
                    self.modern(place, peer, false).await
                }
                Found::Other(why) => Err(format!(
                    "{DISCOVER}: {}",
                    why.unwrap_or_else(|| "no such answer any more".into())
                )),
            },
            Some(SpokenEras::Dual) | None => self.probe(place).await,
        }
    }

    async fn probe(&self, place: HttpEndpoint<'_>) -> Result<Met, String> {
        let mut discover = Box::pin(self.discover(place));
        let found = match tokio::time::timeout(PROBE, &mut discover).await {
            Ok(found) => found?,
            Err(_silent) => {
                let mut hello = Box::pin(self.hello(place, None));
                tokio::select! {
                    biased;
                    found = &mut discover => match found? {
                        Found::Other(_) => return hello.await,
                        modern @ (Found::Modern(_) | Found::OnlyModern(_)) => modern,
                    },
                    met = &mut hello => match met {
                        Ok(met) => return Ok(met),
                        Err(why) => match discover.await? {
                            Found::Other(_) => return Err(why),
                            modern @ (Found::Modern(_) | Found::OnlyModern(_)) => modern,
                        },
                    },
                }
            }
        };
        match found {
            Found::Modern(peer) => self.modern(place, peer, true).await,
            Found::OnlyModern(peer) => self.modern(place, peer, false).await,
            Found::Other(why) => self.hello(place, why).await,
        }
    }

    /// Sends `server/discover`, twice if the server offered our version.
    async fn discover(&self, place: HttpEndpoint<'_>) -> Result<Found, String> {
        let Some(answer) = self.ask_alone(place).await? else {
            return Ok(Found::Other(None));
        };
        let Some(offer) = handshake::offer(&answer) else {
            return Ok(handshake::judge(answer));
        };
        let again = self.ask_alone(place).await?;
        Ok(offer.taken(again.map_or(Found::Other(None), handshake::judge)))
    }

    /// A server that closes the connection at an unknown question does not speak its
    /// era.
    async fn ask_alone(&self, place: HttpEndpoint<'_>) -> Result<Option<Outcome>, String> {
        let meta = crate::link::wrapped(None, &self.connector.version, self.offers_mgp());
        let frame = jsonrpc::request("0", DISCOVER, Some(&meta));
        match place.ask_alone(DISCOVER, frame.into()).await {
            Ok(answer) => Ok(answer.as_ref().map(outcome)),
            Err(error) if error.is_no_answer() => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    /// A modern server; with `both` it is asked for the legacy era as well.
    async fn modern(
        &self,
        place: HttpEndpoint<'_>,
        peer: Box<Peer>,
        both: bool,
    ) -> Result<Met, String> {
        let mut way = None;
        if both
            && let Ok(Ok((wire, answer))) =
                tokio::time::timeout(PROBE, place.initialize(self.initialize())).await
            && let Ok(result) = outcome(&answer)
            && handshake::read(&result).is_ok()
        {
            way = Some(MetWire::Streamable(wire, Some(result)));
        }
        let wire = match way {
            Some(way) => way,
            None => MetWire::Streamable(place.wire(None).map_err(|e| e.to_string())?, None),
        };
        Ok(Met {
            modern: Some(peer),
            wire,
        })
    }

    /// Sends `initialize`, over either transport. `modern` is why the modern era failed.
    async fn hello(&self, place: HttpEndpoint<'_>, modern: Option<String>) -> Result<Met, String> {
        let opened = place.open(self.initialize()).await;
        let wire = match opened {
            Ok(Opened::Streamable { wire, answer }) => {
                let result = outcome(&answer).map_err(|error| {
                    let words = if let Refusal::Peer(error) = &error {
                        error.get().to_owned()
                    } else {
                        error.to_string()
                    };
                    unspoken(modern.clone(), &words)
                })?;
                MetWire::Streamable(wire, Some(result))
            }
            Ok(Opened::Sse { wire, stream }) => MetWire::Sse(wire, stream),
            Err(error) => {
                return Err(match modern {
                    Some(_) => unspoken(modern, &error),
                    None => error.to_string(),
                });
            }
        };
        Ok(Met { modern: None, wire })
    }

    fn initialize(&self) -> Bytes {
        let consents = self.spec.limits.consents;
        let params = handshake::params(
            &self.connector.version,
            (self.offers_mgp(), self.offers_mcpl()),
            consents,
        );
        jsonrpc::request("0", "initialize", Some(&params)).into()
    }

    async fn streamable(
        &self,
        wire: Arc<HttpWire>,
        modern: Option<Box<Peer>>,
        hello: Option<Bytes>,
    ) -> End {
        wire.passes(&self.spec.pass_headers);
        let link = self.link(Wire::Http(wire.clone()));
        if let Some(peer) = modern {
            link.set_peer(*peer);
        }
        let shake = async {
            if let Some(result) = hello {
                handshake::complete(&link, &result).await?;
                let stream = wire.clone().listen(link.clone());
                drop(link.tends("server.stream", stream).detach());
            }
            spoken(&link).ok_or_else(|| HandshakeError::Failed("it speaks no MCP".into()))
        };
        let end = Box::pin(self.serve(&link, shake)).await;
        let end = end.refine_by_session(wire.session_is_over());
        self.lose(&link, &end);
        let _ = tokio::time::timeout(self.spec.limits.stop_grace, wire.delete()).await;
        end
    }

    async fn old_style(&self, wire: Arc<SseWire>, stream: Box<SseEvents>) -> End {
        let link = self.link(Wire::Sse(wire.clone()));
        let listening = wire.clone().listen(link.clone(), stream);
        let listening = link.tends("server.stream", listening);
        let shake = async { Ok(handshake::legacy(&link, &self.connector.version).await?) };
        let end = Box::pin(self.serve(&link, shake)).await;
        let end = end.refine_by_session(wire.session_is_over());
        self.lose(&link, &end);
        listening.abort();
        end
    }
}

fn spoken(link: &Link) -> Option<SpokenEras> {
    let speaks = |era| link.peer_in(era).is_some();
    match (speaks(Era::Legacy), speaks(Era::Modern)) {
        (true, true) => Some(SpokenEras::Dual),
        (true, false) => Some(SpokenEras::Legacy),
        (false, true) => Some(SpokenEras::Modern),
        (false, false) => None,
    }
}

/// The result, or the error, in the frame of an answer.
fn outcome(answer: &Bytes) -> Outcome {
    match jsonrpc::parse(answer) {
        Ok(Message::Response { outcome, .. }) => outcome
            .map(|result| answer.slice_ref(result.get().as_bytes()))
            .map_err(|error| Refusal::Peer(error.to_owned())),
        Ok(_) | Err(_) => Err(Refusal::Broken("it was not answered".into())),
    }
}

/// Header values are secrets, so an error names only the header.
pub(super) fn header_map(
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
