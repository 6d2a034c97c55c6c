//! No call is let in without a grant in force at the owner.

use mgp_engine::policy::grants::{GrantResource, Subject};
use mgp_protocol::ids::{NodeAgent, NodeServer};

use crate::play::Invariant;
use crate::world::{AllowedCall, World};

/// MGP-080, PRJ-006: the node that owns the server decides, by what it holds.
#[derive(Default)]
pub(crate) struct CallsNeedAGrant;

impl Invariant for CallsNeedAGrant {
    fn holds(&mut self, world: &World) {
        for call in &world.calls {
            judge(world, call);
        }
    }
}

fn judge(world: &World, call: &AllowedCall) {
    let machine = &world.machines[call.machine];
    let on = machine.node().server(call.server.clone());
    let mut fitting = call.held.allows(call.grant);
    let fits = fitting.any(|(by, grant)| {
        let wall_ms = machine.wall_ms(call.at_ms);
        call.held.admins.contains(&by)
            && means_caller(&grant.subject, &call.caller)
            && means_tool(&grant.resource, &on)
            && grant.not_after_ms.is_none_or(|end| wall_ms < end)
    });
    assert!(fits, "{call:?} fits no grant that {} holds", call.machine);
    let revoked = call.held.revoked.contains(&call.grant);
    assert!(!revoked, "{call:?} was revoked");
}

fn means_caller(subject: &Subject, caller: &NodeAgent) -> bool {
    match subject {
        Subject::Agent(agent) => agent == caller,
        Subject::AgentsAt(node) => *node == caller.node,
        Subject::AgentEverywhere(name) => *name == caller.agent,
        Subject::Server(_) => false,
    }
}

fn means_tool(resource: &GrantResource, on: &NodeServer) -> bool {
    match resource {
        GrantResource::Server(of) => of == on,
        GrantResource::Tool(of, tool) => of == on && tool == "tool",
        GrantResource::Tools(of, tools) => {
            of == on && "tool".starts_with(tools.to_string().trim_end_matches('*'))
        }
        GrantResource::Permission(_) | GrantResource::Group(_) => false,
    }
}
