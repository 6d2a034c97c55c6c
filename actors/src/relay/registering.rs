//! `mgp/discovery/*` (MGP §15): as methods, and as tools of the kernel. For the operator, for agents
//! that agreed to `discovery`, and for those that may register.

use mgp_engine::servers::lifecycle::LifecycleState;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp;
use mgp_protocol::mgp::discovery::{Deregister, DiscoveryTool, List, Register, Server, Servers};
use mgp_protocol::mgp::negotiation::Features;
use mgp_protocol::mgp::spells;
use mgp_protocol::refusal::Refusal;
use serde_json::value::RawValue;

use super::{Relay, json};
use crate::registrar::remarks;
use crate::request::{Caller, Outcome, Request};
use crate::server::ServerHandle;

impl Relay {
    /// The method of that name or spelling, when it is one for this caller.
    pub(super) fn registering(&self, caller: &Caller, name: &str) -> Option<DiscoveryTool> {
        let mut all = DiscoveryTool::ALL.into_iter();
        let tool = all.find(|tool| spells(tool.method(), name))?;
        let agreed = caller.mgp.features().contains(Features::DISCOVERY);
        (agreed || self.registrar.licenses(caller)).then_some(tool)
    }

    /// The definitions of these tools, for who may register.
    pub(super) fn registering_tools(&self, caller: &Caller, security: bool) -> Vec<String> {
        let agent = !caller.operator && self.registrar.licenses(caller);
        let all = DiscoveryTool::ALL.iter().filter(|_| agent);
        all.map(|tool| tool.definition(security)).collect()
    }

    /// `mgp/discovery/*`.
    ///
    /// # Errors
    /// [`Refusal::UnknownMethod`] for who did not agree to it; what stands against it.
    pub async fn discovery(&self, request: &Request) -> Outcome {
        let unknown = || Refusal::UnknownMethod(request.method.to_string());
        let found = self.registering(&request.caller, &request.method);
        let params = request.params.as_deref();
        self.discovery_of(request, found.ok_or_else(unknown)?, params)
            .await
    }

    /// The same as a tool of the kernel.
    pub(super) async fn discovery_by_tool(
        &self,
        request: &Request,
        tool: DiscoveryTool,
        arguments: Option<&RawValue>,
    ) -> Outcome {
        let arguments = arguments.map_or("{}", RawValue::get);
        let answer = self.discovery_of(request, tool, Some(arguments)).await?;
        Ok(super::structured(&request.caller, &answer))
    }

    async fn discovery_of(
        &self,
        request: &Request,
        tool: DiscoveryTool,
        params: Option<&str>,
    ) -> Outcome {
        let (caller, trace) = (&request.caller, &request.trace);
        match tool {
            DiscoveryTool::List => self.discovered_servers(caller, &read_list(params)?).await,
            DiscoveryTool::Register => {
                let ask: Register = mcp::read(params)?;
                let needs = ask.mgp.permissions_required.clone();
                let mut told = self.registrar.register(caller, trace, ask).await?;
                let without = self.does_without(&told.id, &told.status, &needs);
                told.remarks.extend(without);
                json(&told)
            }
            DiscoveryTool::Deregister => {
                let ask: Deregister = mcp::read(params)?;
                json(&self.registrar.deregister(caller, trace, ask).await?)
            }
        }
    }

    /// Every server this caller may know of.
    async fn discovered_servers(&self, caller: &Caller, list: &List) -> Outcome {
        let mut servers = Vec::new();
        let all = self.servers.load();
        let book = self.registrar.book.lock().await;
        for (id, handle) in all.iter() {
            if !caller.view.shows(id) || !self.sees(caller, id) {
                continue;
            }
            let mut server = self.described(caller, handle);
            let record = book.servers.get(id);
            server.created_by = record.map(|record| record.created_by.clone());
            if record.is_some_and(|record| record.is_of(caller)) {
                server.remarks = remarks(handle);
                let needs = &server.permissions_required;
                let without = self.does_without(&server.id, &server.status, needs);
                server.remarks.extend(without);
            }
            if list.filter.takes(&server) {
                servers.push(server);
            }
        }
        json(&Servers { servers })
    }

    /// What a server that runs was not permitted, in words.
    fn does_without(&self, server: &str, state: &str, needs: &[String]) -> Option<String> {
        if state != LifecycleState::Connected.as_str() {
            return None;
        }
        let lacking = self.permissions.lacks(&ServerId::new(server), needs);
        lacking.map(|lacking| lacking.to_string())
    }

    fn described(&self, caller: &Caller, handle: &ServerHandle) -> Server {
        let status = handle.status();
        let link = handle.link();
        let spoken = link.as_ref().and_then(|link| link.mgp().active());
        let catalog = &self.shown.load().catalog;
        let who = caller.identity();
        let mut tools: Vec<String> = handle
            .tools()
            .iter()
            .map(|own| caller.view.name_of(&handle.id, own))
            .collect();
        tools.retain(|tool| {
            let found = catalog.tool(&caller.view, tool);
            found.is_some_and(|tool| self.may_call(&who, tool))
        });
        let declared = &status.declared;
        let mut permissions = declared.permissions_required.clone();
        let said = spoken.map(|active| active.peer.permissions_required.clone());
        permissions.extend(said.unwrap_or_default());
        permissions.sort();
        permissions.dedup();
        Server {
            id: handle.id.to_string(),
            status: status.state.as_str().into(),
            mgp_version: spoken.map(|active| active.version.to_string()),
            extensions: match spoken {
                Some(active) => active.words().iter().map(ToString::to_string).collect(),
                None => declared.extensions.clone(),
            },
            permissions_required: permissions,
            tools,
            trust_level: handle.trust().as_str().into(),
            node: None,
            created_by: None,
            remarks: Vec::new(),
        }
    }
}

fn read_list(params: Option<&str>) -> Result<List, Refusal> {
    mcp::read(Some(params.unwrap_or("{}")))
}
