//! The servers of this kernel, for interceptors of results.

use std::sync::Weak;

use mgp_callers::InFlightCall;
use mgp_callers::request::Caller;
use mgp_protocol::ids::ServerId;
use mgp_protocol::refusal::Refusal;

use crate::link::{Connecting, InterceptorServers};
use crate::server::ServerTable;

/// The table of servers. Weak: its servers hold their connections, which hold this.
#[derive(Debug)]
pub(super) struct TableServers(pub(super) Weak<ServerTable>);

impl InterceptorServers for TableServers {
    fn connect<'a>(
        &'a self,
        server: &'a str,
        caller: Option<&'a Caller>,
        in_flight: &'a InFlightCall,
    ) -> Connecting<'a> {
        Box::pin(async move {
            let id = ServerId::new(server);
            let servers = self.0.upgrade();
            let handle = servers.and_then(|servers| servers.load().get(&id).cloned());
            match handle.filter(|_| !id.is_remote()) {
                Some(handle) => handle.connection(caller, in_flight).await,
                None => Err(Refusal::UnknownServer(id.to_string())),
            }
        })
    }
}
