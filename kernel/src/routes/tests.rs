use std::collections::BTreeSet;

use mgp_calls::mgp::kernel_tool;
use mgp_engine::cluster::remote_requests::{self, MethodCheck, RemoteTarget};

use super::*;

#[test]
fn methods_exist_only_for_clients_of_their_protocol() {
    let is_known = |method| {
        [ProtocolFamily::Legacy, ProtocolFamily::Stateless]
            .map(|family| agent_route(method, family).is_some())
    };
    assert_eq!(is_known("tools/call"), [true, true]);
    assert_eq!(is_known("ping"), [true, false]);
    assert_eq!(is_known("tasks/update"), [false, true]);
    assert_eq!(is_known("mgp/kernel/status"), [true, true]);
    assert_eq!(is_known("mgp/kernel"), [false, false]);
}

/// A call that waited is checked again wherever a new one is checked.
#[test]
fn methods_that_name_server_objects_are_rechecked_after_a_wait() {
    let is_rechecked = |method| {
        agent_route(method, ProtocolFamily::Stateless).is_some_and(|r| r.recheck.is_some())
    };
    for method in ["tools/call", "prompts/get", "resources/read"] {
        assert!(is_rechecked(method), "{method}");
    }
}

/// The string literals in this file's tables.
fn literals() -> impl Iterator<Item = &'static str> {
    include_str!("../routes.rs").split('"').skip(1).step_by(2)
}

/// Operator methods, and only those, are checked as such. Methods of MCPL hosts are decided by feature sets.
#[test]
fn the_audience_of_each_method_agrees_with_the_checks_of_its_row() {
    let families = [ProtocolFamily::Legacy, ProtocolFamily::Stateless];
    let routes =
        literals().flat_map(|name| families.map(|family| (name, agent_route(name, family))));
    for (name, route) in routes.filter_map(|(name, route)| Some((name, route?))) {
        let row = remote_requests::find_rule(RemoteTarget::Method(name)).expect(name);
        let expected = match route.audience {
            RouteAudience::Operator => row.check == MethodCheck::Operator,
            RouteAudience::McplHosts => {
                [MethodCheck::FeatureSet, MethodCheck::Channel].contains(&row.check)
            }
            RouteAudience::Everybody
            | RouteAudience::Negotiated(_)
            | RouteAudience::Discovery
            | RouteAudience::Skills => row.check != MethodCheck::Operator,
        };
        assert!(expected, "{name}: {:?}", row.check);
    }
    let channels = literals().filter(|name| name.starts_with("channels/"));
    let checked: Vec<&str> = remote_requests::methods_with_check(MethodCheck::Channel).collect();
    let unchecked = channels.filter(|name| !checked.contains(name));
    assert_eq!(unchecked.collect::<Vec<_>>(), [""; 0]);
}

/// Each method and tool declares which callers of other nodes may use it, and what is checked for all callers.
#[test]
fn each_method_and_tool_declares_its_checks() {
    let methods: BTreeSet<&str> = literals()
        .filter(|name| {
            [ProtocolFamily::Legacy, ProtocolFamily::Stateless]
                .into_iter()
                .any(|family| agent_route(name, family).is_some())
        })
        .collect();
    let notifications: BTreeSet<&str> = literals()
        .filter(|name| agent_notification_handler(name).is_some())
        .collect();
    let operators = operator::tools::METHODS.into_iter();
    let tools: Vec<&str> = kernel_tool::methods()
        .into_iter()
        .chain(operators)
        .collect();
    let arms = literals()
        .filter(|name| name.contains('/'))
        .collect::<BTreeSet<_>>();
    let walked = methods.union(&notifications).chain(["ping"].iter());
    assert!(
        arms.is_subset(&walked.copied().collect()),
        "arms that are not walked"
    );
    assert!(methods.len() > 100 && tools.len() > 20 && notifications.len() > 8);
    let targets = methods.into_iter().map(RemoteTarget::Method);
    let targets = targets.chain(notifications.into_iter().map(RemoteTarget::Notification));
    let targets = targets.chain(tools.into_iter().map(RemoteTarget::KernelTool));
    let without = targets.filter(|target| remote_requests::find_rule(*target).is_none());
    assert_eq!(without.collect::<Vec<_>>(), []);
}

#[test]
fn every_operator_tool_maps_to_a_method() {
    for method in operator::tools::METHODS {
        let route = agent_route(method, ProtocolFamily::Stateless).expect(method);
        assert!(
            matches!(
                route.audience,
                RouteAudience::Operator | RouteAudience::Negotiated(_)
            ),
            "{method}"
        );
    }
}
