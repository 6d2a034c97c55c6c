//! What the server of a tool may do, and whether the tool is the one that was approved (MGP §3, §4.3).

use mgp_engine::catalog::{Tool, View};
use mgp_engine::permissions::Lacking;
use mgp_protocol::ids::ServerId;
use mgp_protocol::refusal::{Denial, Refusal};

use super::Relay;
use super::access::Admitted;
use crate::link::Leave;
use crate::request::Caller;

/// Leave to call a tool, whose server has what it needs for that.
#[derive(Debug)]
pub(super) struct Permitted<'a> {
    admitted: Admitted<'a>,
    relay: &'a Relay,
    caller: &'a Caller,
    name: &'a str,
    tool: &'a Tool,
}

impl Permitted<'_> {
    fn may(&self) -> Result<(), Refusal> {
        let Tool {
            server,
            own_name,
            duties,
            ..
        } = self.tool;
        if self.relay.pins.blocks(server, own_name) {
            return Err(self.relay.absent(self.caller, self.name.to_owned()));
        }
        let judged = self.relay.permissions.may(server, &duties.permissions);
        judged.map_err(|lacking| lacks(self.name, &lacking))
    }
}

impl Leave for Permitted<'_> {
    fn still(&self) -> Result<(), Refusal> {
        self.admitted.still()?;
        self.may()
    }
}

impl Relay {
    /// The server of the tool has what a call of it needs, now, and the tool is the one that was
    /// approved; looked at again right before the call leaves.
    ///
    /// # Errors
    /// 1000 (MGP-050), which names the first that is missing; what [`Self::absent`] says.
    pub(super) fn permit<'a>(
        &'a self,
        caller: &'a Caller,
        admitted: Admitted<'a>,
        name: &'a str,
        tool: &'a Tool,
    ) -> Result<Permitted<'a>, Refusal> {
        let permitted = Permitted {
            admitted,
            relay: self,
            caller,
            name,
            tool,
        };
        permitted.may()?;
        Ok(permitted)
    }

    /// A tool that is not there.
    pub(super) fn absent(&self, caller: &Caller, name: String) -> Refusal {
        let why = self.changed(caller, &name);
        let why = why.or_else(|| self.away(caller, &name));
        why.unwrap_or(Refusal::UnknownTool(name))
    }

    /// A tool that changed is gone for everybody; who speaks MGP and may call it hears why (MGP-202).
    fn changed(&self, caller: &Caller, name: &str) -> Option<Refusal> {
        if !caller.mgp.says_codes() {
            return None;
        }
        let (server, own) = self.pins.meant(&caller.view, name)?;
        let unknown = Refusal::UnknownTool(name.to_owned());
        self.admit(caller, &server, Some(&own), unknown).ok()?;
        Some(Refusal::Denied(Box::new(Denial::Disabled {
            tool: name.to_owned(),
            reason: format!(
                "its definition is not the one that was approved; `mgp pending` shows the operator the change of server {server}"
            ),
        })))
    }

    /// A server that is not connected offers nothing, and who speaks MGP hears that it is so (MGP-193):
    /// of servers it may know, and of tools that are not denied to it.
    fn away(&self, caller: &Caller, name: &str) -> Option<Refusal> {
        if !caller.mgp.says_codes() {
            return None;
        }
        let servers = self.servers.load();
        let of_it = |id: &ServerId| match &caller.view {
            View::One(one) => (one == id).then_some(name),
            View::All => {
                let rest = name.strip_prefix(id.as_str())?;
                rest.strip_prefix(':').or_else(|| rest.strip_prefix("__"))
            }
        };
        let mut named = servers
            .iter()
            .filter_map(|(id, handle)| Some((id, handle, of_it(id)?)));
        let (id, handle, own) = named.find(|(_, handle, _)| handle.link().is_none())?;
        let unknown = Refusal::UnknownTool(name.to_owned());
        self.admit(caller, id, Some(own), unknown).ok()?;
        Some(handle.not_ready())
    }
}

fn lacks(name: &str, lacking: &Lacking) -> Refusal {
    let missing = lacking.permissions.first();
    Refusal::Denied(Box::new(Denial::Permission {
        tool: name.to_owned(),
        permission: missing.map(ToString::to_string).unwrap_or_default(),
    }))
}
