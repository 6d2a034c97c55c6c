//! Skills that match a search for tools.

use mgp_engine::policy::access::Principal;
use mgp_engine::tools::catalog::CatalogView;
use mgp_engine::tools::skills::{self, SkillQuery};
use mgp_json::{member, unquote};
use mgp_protocol::mgp::tools::SkillMatch;

use super::{ListSource, list_all, skill_servers};
use crate::Context;
use crate::checks::access;
use mgp_callers::request::Request;

/// Most skills in an answer: their descriptions are in the context of a model.
const RESULTS_MAX: usize = 3;
/// Most skills that one search compares.
const SEARCHED_MAX: usize = 2048;
/// Most characters of a description.
const DESCRIPTION_MAX: usize = 240;

/// The skills that this agent may use and that match best. Servers whose skills are not known yet are asked first, and
/// those of other nodes each time. `principal` is the caller, or the agent that the operator asks for.
pub async fn search(
    cx: &Context,
    request: &Request,
    principal: &Principal,
    query: &str,
) -> Vec<SkillMatch> {
    let caller = &request.caller;
    let servers = skill_servers(cx, caller);
    let listed = list_all(cx, request, &servers, ListSource::KnownFirst).await;
    let query = SkillQuery::new(query);
    let all = servers.iter().zip(listed);
    let all = all.flat_map(|(server, listed)| listed.into_iter().map(move |it| (server, it)));
    let found = all.take(SEARCHED_MAX).filter_map(|(server, skill)| {
        let score = query.score(&skill)?;
        access::can_use_skill(cx, principal, server, &skill.uri).then_some((server, skill, score))
    });
    let mut found: Vec<_> = found.collect();
    found.sort_by(|(_, _, one), (_, _, other)| other.score.total_cmp(&one.score));
    let found = found.into_iter().take(RESULTS_MAX);
    let to_match = found.map(|(server, skill, score)| {
        let resources = member(&skill.text, "resources").and_then(unquote);
        SkillMatch {
            uri: match &caller.view {
                CatalogView::One(_) => skill.uri.to_string(),
                CatalogView::All | CatalogView::Set(_) => skills::wrap_uri(server, &skill.uri),
            },
            server: server.to_string(),
            name: score.name,
            description: score.description.chars().take(DESCRIPTION_MAX).collect(),
            fits: score.fits,
            dynamic: resources.is_some(),
        }
    });
    to_match.collect()
}
