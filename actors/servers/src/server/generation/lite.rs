//! A generation of an MCP-lite server. There is no connection and no handshake: the server is ready when its
//! list can be read.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::header::HeaderMap;
use mgp_engine::servers::spec::UrlProtocol;
use mgp_protocol::dialect::{ProtocolFamily, Version};
use mgp_protocol::mcp::ServerCapabilities;
use mgp_protocol::mgp::negotiation::PLAIN;

use super::ServerGeneration;
use super::end::End;
use super::handshake::HandshakeError;
use super::remote::to_header_map;
use crate::link::{Link, LiteWire, Peer, Wire};
use crate::login::ServerClient;
use crate::server::protocol_families::SpokenFamilies;

/// The MCP capabilities of lite servers.
const CAPABILITIES: &str = r#"{"tools":{}}"#;

impl ServerGeneration {
    /// Runs a generation of the lite server at `url`.
    pub(in crate::server) async fn run_lite(
        &self,
        url: &str,
        headers: &BTreeMap<String, String>,
        speaks: UrlProtocol,
    ) -> End {
        let login = self
            .connector
            .logins
            .login_for(&self.spec, self.handle.agent());
        if let Some(login) = &login {
            login.begin_generation().await;
        }
        let client = ServerClient::new(self.connector.client.clone(), login);
        let wire = to_header_map(headers)
            .and_then(|headers| self.build_lite_wire(client, url, headers, speaks));
        let wire = match wire {
            Ok(wire) => wire,
            Err(why) => return End::Failed(why),
        };
        let link = self.build_link(Wire::Lite(wire.clone()));
        let handshake_future = read_first_list(&link);
        let end = Box::pin(self.serve(&link, handshake_future)).await;
        self.close_link(&link, &end);
        match (end, wire.park_reason()) {
            // A retry would fail the same way: a person has to sign in.
            (End::Failed(_), Some(why)) => End::Rejected(why),
            (end, _) => end,
        }
    }

    fn build_lite_wire(
        &self,
        client: ServerClient,
        url: &str,
        headers: HeaderMap,
        speaks: UrlProtocol,
    ) -> Result<Arc<LiteWire>, String> {
        let forwarded_names = &self.spec.pass_headers;
        match speaks {
            UrlProtocol::Mcp | UrlProtocol::Lite => {
                LiteWire::with_http(client, url, headers, forwarded_names)
            }
            UrlProtocol::Grpc => {
                LiteWire::with_grpc(&self.connector.client, url, headers, forwarded_names)
            }
        }
    }
}

/// Reads the list for the first time.
async fn read_first_list(link: &Arc<Link>) -> Result<SpokenFamilies, HandshakeError> {
    let listed = link
        .request_in(ProtocolFamily::Legacy, "tools/list", None)
        .await;
    listed.map_err(|refusal| HandshakeError::Failed(format!("its list of tools: {refusal}")))?;
    let capabilities = serde_json::value::RawValue::from_string(CAPABILITIES.into());
    link.set_peer(Peer {
        version: Version::LATEST_LEGACY,
        capabilities: ServerCapabilities::parse(capabilities.ok().as_deref()),
        raw_capabilities: CAPABILITIES.into(),
        info: None,
        instructions: None,
        mgp: PLAIN,
        mcpl: None,
    });
    Ok(SpokenFamilies::Legacy)
}
