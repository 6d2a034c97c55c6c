//! `tools/call`, `prompts/get`, `resources/read`, `completion/complete`.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mgp_engine::policy::access::Principal;
use mgp_engine::tools::catalog::{CatalogPrompt, CatalogTool, CatalogView, ListKind, NamedItem};
use mgp_engine::tools::uris::WRAPPED;
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp::{self, completion, prompts, resources, tools};
use mgp_protocol::mgp::tools::meta::MetaTool;
use mgp_protocol::refusal::Refusal;
use mgp_protocol::splice::{Splice, member, quoted};
use serde_json::value::RawValue;

use super::access::not_granted;
use super::audited::Seen;
use super::forward::{Mirrored, Outgoing};
use super::tracing::may_be_of_mgp;
use super::{Relay, checks, finding, granting, progress_token, required, text, token_in};
use crate::request::{Caller, Outcome, Request};
use crate::time::unix_ms;

/// How often, and at which distance, the kernel looks whether a server's tools have been fetched
/// again before it gives a call up: half a second, when a definition changed under a call.
const MOVES_ON: usize = 25;
const LOOK: Duration = Duration::from_millis(20);

impl Relay {
    /// Calls a tool: arguments are checked before the call leaves the kernel, a structured result
    /// when it comes back.
    ///
    /// # Errors
    /// Any refusal of a call.
    pub async fn call_tool(&self, request: &Request) -> Outcome {
        let admitted = AtomicBool::new(false);
        let seen = |seen| self.call_tool_seen(request, seen, &admitted);
        let outcome = self.audited(request, seen).await;
        // The log knows that it was denied; its caller may not.
        let shown = admitted.load(Ordering::Relaxed);
        outcome.map_err(|refusal| self.denied(&request.caller, refusal, shown))
    }

    async fn call_tool_seen(
        &self,
        request: &Request,
        seen: Arc<Seen>,
        admitted: &AtomicBool,
    ) -> Outcome {
        let generation = self.shown.load().catalog.generation();
        match self.call_tool_once(request, &seen, admitted).await {
            // The headers were made from an older definition of the tool; nothing was done yet.
            Err(Refusal::Peer(error)) if is_mismatch(&error) && self.moves_on(generation).await => {
                self.call_tool_once(request, &seen, admitted).await
            }
            outcome => outcome,
        }
    }

    /// True as soon as a newer catalog is published.
    async fn moves_on(&self, generation: u64) -> bool {
        for _ in 0..MOVES_ON {
            if self.shown.load().catalog.generation() > generation {
                return true;
            }
            tokio::time::sleep(LOOK).await;
        }
        false
    }

    async fn call_tool_once(
        &self,
        request: &Request,
        seen: &Seen,
        admitted: &AtomicBool,
    ) -> Outcome {
        let params = required(request)?;
        let call: tools::Call<'_> = mcp::read(Some(params))?;
        let name = text(call.name, "name")?;
        let token = token_in(call.meta)?;
        seen.asks_for(&name, request, call.arguments.map(RawValue::get));
        let arguments = call.arguments.map_or("{}", RawValue::get);
        if let Some(tool) = MetaTool::named(&name) {
            let answer = self.by_meta_tool(request, tool, arguments, seen, admitted);
            return Box::pin(answer).await;
        }
        self.rates.call(&request.caller.agent)?;
        if let Some(method) = granting::method(&request.caller, &name) {
            let answer = self.administer_by_tool(request, method, call.arguments);
            return Box::pin(answer).await;
        }
        if let Some(tool) = self.registering(&request.caller, &name) {
            let answer = self.discovery_by_tool(request, tool, call.arguments);
            return Box::pin(answer).await;
        }
        let route = match self.tool(&request.caller.view, &name) {
            Some(route) => route,
            None => Box::pin(self.arriving(request, &name)).await?,
        };
        seen.is_of(&route);
        let (tool, unknown) = (Some(&*route.own_name), not_granted(&name));
        let leave = match self.admit(&request.caller, &route.server, tool, unknown) {
            Ok(leave) => leave,
            Err(unknown) => {
                let named = named(request, ListKind::Tools, &name);
                return Err(Box::pin(self.unseen(request, named, unknown)).await);
            }
        };
        admitted.store(true, Ordering::Relaxed);
        checks::arguments(&name, &route, call.arguments)?;
        let leave = self.permit(&request.caller, leave, &name, &route)?;
        self.validation.judge(&route, arguments).await?;
        self.confirmed(request, &name, &route, arguments).await?;
        let outgoing = Outgoing {
            tool: Some(&route),
            server: &route.server,
            leave: Some(&leave),
            method: "tools/call",
            params,
            of_mgp: call.trace_id || call.mgp,
            edit: (call.name.get(), &route.own_name_json),
            token,
            mirrored: Mirrored {
                name: Some(&route.own_name),
                arguments: Some((&route.param_headers, arguments)),
            },
        };
        let result = self.retrying(request, outgoing).await?;
        let answer = match self.announced(request, &route, &result)? {
            Some(task) => task,
            None => checks::result(&name, &route, result)?,
        };
        self.used(&request.caller, &route);
        Ok(answer)
    }

    /// The tool of that name, when a server comes that has it.
    async fn arriving(&self, request: &Request, name: &str) -> Result<Arc<CatalogTool>, Refusal> {
        let look = || self.tool(&request.caller.view, name);
        let named = named(request, ListKind::Tools, name);
        let found = self.arrived(request, named, look).await?;
        found.ok_or_else(|| self.absent(&request.caller, name.to_owned()))
    }

    /// What is there and closed to the caller: it is told so when it would be told of a thing that is
    /// nobody's.
    async fn unseen(&self, request: &Request, named: NamedItem<'_>, unknown: Refusal) -> Refusal {
        match self.arrived(request, named, || None::<()>).await {
            Ok(_) => unknown,
            Err(stop) => stop,
        }
    }

    /// A call of a tool that finds others. One that was found is called as if it had been listed: the
    /// record is of that tool, and it counts once.
    async fn by_meta_tool(
        &self,
        request: &Request,
        tool: MetaTool,
        arguments: &str,
        seen: &Seen,
        admitted: &AtomicBool,
    ) -> Outcome {
        if tool == MetaTool::Call {
            let call = finding::called(request, mcp::read(Some(arguments))?)?;
            return self.call_tool_once(&call, seen, admitted).await;
        }
        self.rates.call(&request.caller.agent)?;
        self.find_by_tool(request, tool, arguments, seen).await
    }

    /// Gets a prompt.
    ///
    /// # Errors
    /// Any refusal of a call.
    pub async fn get_prompt(&self, request: &Request) -> Outcome {
        let params = required(request)?;
        let get: prompts::Get<'_> = mcp::read(Some(params))?;
        let name = text(get.name, "name")?;
        let route = Box::pin(self.prompt(request, &name)).await?;
        let unknown = Refusal::UnknownPrompt(name.clone());
        let leave = self.admit(&request.caller, &route.server, None, unknown)?;
        checks::prompt_arguments(&name, &route, get.arguments)?;
        let outgoing = Outgoing {
            tool: None,
            server: &route.server,
            leave: Some(&leave),
            method: "prompts/get",
            params,
            of_mgp: may_be_of_mgp(params),
            edit: (get.name.get(), &route.own_name_json),
            token: progress_token(params)?,
            mirrored: Mirrored::named(&route.own_name),
        };
        self.forward(request, outgoing).await
    }

    /// Reads a resource; its contents come back under the URI that was asked for.
    ///
    /// # Errors
    /// Any refusal of a call.
    pub async fn read_resource(&self, request: &Request) -> Outcome {
        let params = required(request)?;
        let about: resources::About<'_> = mcp::read(Some(params))?;
        let uri = text(about.uri, "uri")?;
        if Self::is_own(&request.caller, &uri) {
            return Ok(self.read_own(&request.caller));
        }
        let (server, own) = Box::pin(self.owner(request, &uri)).await?;
        let unknown = Refusal::UnknownResource(uri.clone());
        let leave = self.admit(&request.caller, &server, None, unknown)?;
        let outgoing = Outgoing {
            tool: None,
            server: &server,
            leave: Some(&leave),
            method: "resources/read",
            params,
            of_mgp: may_be_of_mgp(params),
            edit: (about.uri.get(), &quoted(&own)),
            token: progress_token(params)?,
            mirrored: Mirrored::named(&own),
        };
        let result = self.forward(request, outgoing).await?;
        if own == uri {
            return Ok(result);
        }
        Ok(rename_contents(&result, &own, &uri).map_or(result, Into::into))
    }

    /// Completes an argument of a prompt or a template.
    ///
    /// # Errors
    /// Any refusal of a call.
    pub async fn complete(&self, request: &Request) -> Outcome {
        let params = required(request)?;
        let complete: completion::Complete<'_> = mcp::read(Some(params))?;
        let (server, part, own) = Box::pin(self.referred(request, &complete.reference)).await?;
        let gone = Refusal::BadParams("`ref` names nothing that is there".into());
        let leave = self.admit(&request.caller, &server, None, gone)?;
        let can = self
            .shown
            .load()
            .peers
            .get(&server)
            .is_some_and(|p| p.capabilities.completions);
        if !can {
            return Err(Refusal::UnknownMethod("completion/complete".into()));
        }
        let outgoing = Outgoing {
            tool: None,
            server: &server,
            leave: Some(&leave),
            method: "completion/complete",
            params,
            of_mgp: may_be_of_mgp(params),
            edit: (part, &quoted(&own)),
            token: progress_token(params)?,
            mirrored: Mirrored::default(),
        };
        self.forward(request, outgoing).await
    }

    /// The prompt of that name, of a server that is open to the caller.
    async fn prompt(&self, request: &Request, name: &str) -> Result<Arc<CatalogPrompt>, Refusal> {
        let caller = &request.caller;
        let look = || {
            let prompt = self
                .shown
                .load()
                .catalog
                .prompt(&caller.view, name)
                .cloned();
            prompt.filter(|prompt| self.opens(caller, &prompt.server))
        };
        if let Some(prompt) = look() {
            return Ok(prompt);
        }
        let named = named(request, ListKind::Prompts, name);
        let found = self.arrived(request, named, look).await?;
        found.ok_or_else(|| {
            let away = self.standing(caller, named);
            away.unwrap_or_else(|| Refusal::UnknownPrompt(name.to_owned()))
        })
    }

    /// Whose resource a URI is, and under which URI its server knows it. A server that comes and may
    /// have it is waited for.
    pub(super) async fn owner(
        &self,
        request: &Request,
        uri: &str,
    ) -> Result<(ServerId, String), Refusal> {
        let look = || self.listed_owner(&request.caller, uri);
        self.owner_by(request, named(request, ListKind::Resources, uri), look)
            .await
    }

    async fn owner_by(
        &self,
        request: &Request,
        named: NamedItem<'_>,
        look: impl Fn() -> Option<(ServerId, String)>,
    ) -> Result<(ServerId, String), Refusal> {
        if let Some(owner) = look() {
            return Ok(owner);
        }
        if let Some(owner) = Box::pin(self.arrived(request, named, look)).await? {
            return Ok(owner);
        }
        match self.standing(&request.caller, named) {
            Some(away) => Err(away),
            None => self.unlisted_owner(&request.caller, named.name),
        }
    }

    /// The same of what is known right now, of servers that are away as well. A server that is not
    /// open to the caller owns nothing.
    pub(super) fn owner_of(
        &self,
        caller: &Caller,
        uri: &str,
    ) -> Result<(ServerId, String), Refusal> {
        let named = NamedItem {
            view: &caller.view,
            kind: ListKind::Resources,
            name: uri,
        };
        let listed = self.listed_owner(caller, uri);
        match listed.or_else(|| self.absent_owner(caller, named)) {
            Some(owner) => Ok(owner),
            None => self.unlisted_owner(caller, uri),
        }
    }

    fn listed_owner(&self, caller: &Caller, uri: &str) -> Option<(ServerId, String)> {
        let shown = self.shown.load();
        let route = shown.catalog.resource(&caller.view, uri);
        let open = route.filter(|route| self.opens(caller, route.server))?;
        Some((open.server.clone(), open.uri.into_owned()))
    }

    /// A server may know more than it lists; where it is clear which server is meant, it is asked.
    fn unlisted_owner(&self, caller: &Caller, uri: &str) -> Result<(ServerId, String), Refusal> {
        let shown = self.shown.load();
        // A wrapped one names its server: no other one answers for it.
        if caller.view == CatalogView::All && uri.starts_with(WRAPPED) {
            return Err(Refusal::UnknownResource(uri.to_owned()));
        }
        let mut can = shown.peers.iter().filter(|(id, peer)| {
            peer.capabilities.resources && caller.view.shows(id) && self.opens(caller, id)
        });
        match (can.next(), can.next()) {
            (Some((only, _)), None) => Ok((only.clone(), uri.to_owned())),
            (None | Some(_), _) => Err(Refusal::UnknownResource(uri.to_owned())),
        }
    }

    /// Server, the text in the frame that names the prompt or template, and its own name there.
    async fn referred<'a>(
        &self,
        request: &Request,
        reference: &completion::Reference<'a>,
    ) -> Result<(ServerId, &'a str, String), Refusal> {
        let missing = |what: &str| Refusal::BadParams(format!("`ref.{what}` is missing"));
        match reference.kind.as_ref() {
            "ref/prompt" => {
                let raw = reference.name.ok_or_else(|| missing("name"))?;
                let name = text(raw, "ref.name")?;
                let route = self.prompt(request, &name).await?;
                Ok((route.server.clone(), raw.get(), route.own_name.to_string()))
            }
            "ref/resource" => {
                let raw = reference.uri.ok_or_else(|| missing("uri"))?;
                let uri = text(raw, "ref.uri")?;
                let (server, own) = self.template_owner(request, &uri).await?;
                Ok((server, raw.get(), own))
            }
            other => Err(Refusal::BadParams(format!(
                "`ref.type` must be ref/prompt or ref/resource, not {other:?}"
            ))),
        }
    }

    /// Whose template it is, or whose resource, and what its server calls it.
    async fn template_owner(
        &self,
        request: &Request,
        uri: &str,
    ) -> Result<(ServerId, String), Refusal> {
        let caller = &request.caller;
        let template = || {
            let shown = self.shown.load();
            let template = shown.catalog.template(&caller.view, uri);
            let open = template.filter(|template| self.opens(caller, &template.server))?;
            Some((open.server.clone(), open.uri.to_string()))
        };
        let look = || template().or_else(|| self.listed_owner(caller, uri));
        self.owner_by(request, named(request, ListKind::Templates, uri), look)
            .await
    }
}

fn named<'a>(request: &'a Request, kind: ListKind, name: &'a str) -> NamedItem<'a> {
    NamedItem {
        view: &request.caller.view,
        kind,
        name,
    }
}

fn is_mismatch(error: &RawValue) -> bool {
    member(error.get(), "code") == Some("-32020")
}

/// Puts the URI the client knows in the place of the server's own.
fn rename_contents(result: &[u8], own: &str, shown: &str) -> Option<String> {
    let result = std::str::from_utf8(result).ok()?;
    let contents = member(result, "contents")?;
    let contents: Vec<&RawValue> = serde_json::from_str(contents).ok()?;
    let mut splice = Splice::new(result);
    for content in contents {
        let uri = member(content.get(), "uri")?;
        if serde_json::from_str::<Cow<'_, str>>(uri).ok()? == own {
            splice.replace(uri, quoted(shown));
        }
    }
    Some(splice.finish().into_owned())
}

impl Relay {
    /// True when this view shows something that exists, as far as this caller may know.
    #[must_use]
    pub fn knows(&self, view: &CatalogView, who: &Principal) -> bool {
        match view {
            CatalogView::All => true,
            CatalogView::One(id) => {
                let table = self.access.table();
                self.servers.load().contains_key(id) && table.sees(who, id, unix_ms())
            }
        }
    }
}
