//! What a list of tools costs an agent before it has done anything, and what it costs to find them
//! instead.

use std::collections::BTreeMap;

use mgp_engine::callers::token_cost;
use mgp_engine::tools::exposure::{Exposure, count_categories, describe_categories};
use mgp_engine::tools::index::{Index, IndexedTool};
use mgp_protocol::mgp::tools::meta::MetaTool;
use mgp_tests::load::{Cell, Table};

/// How many tools the figures of §16.1 and §16.3 speak of.
const OF_THE_TABLE: usize = 300;
/// What is pinned in the last line.
const PINNED: usize = 2;

pub(crate) fn table(index: &Index) -> Table {
    let all: Vec<&IndexedTool> = index.servers().flat_map(|shelf| shelf.entries()).collect();
    let mut rows = Vec::new();
    for count in [all.len(), OF_THE_TABLE] {
        // Of all servers alike.
        let some = (0..count).map(|n| all[n * all.len() / count]);
        let some: Vec<&IndexedTool> = some.collect();
        let whole = cost(Exposure::All, &some, 0);
        // The levels of the table of §16.3.
        for (level, exposure, pinned) in [
            (0, Exposure::All, 0),
            (1, Exposure::Categories, 0),
            (2, Exposure::Discovery, 0),
            (3, Exposure::Pinned, 0),
            (3, Exposure::Pinned, PINNED),
        ] {
            let (definitions, tokens) = cost(exposure, &some, pinned);
            rows.push(vec![
                Cell::Number(count as f64, 0),
                format!("L{level} {}", exposure.as_str()).into(),
                Cell::Number(pinned as f64, 0),
                Cell::Number(definitions as f64, 0),
                Cell::Number(tokens as f64, 0),
                Cell::Number(100.0 * (1.0 - tokens as f64 / whole.1 as f64), 1),
            ]);
        }
    }
    Table {
        title: "What tools/list costs",
        columns: &[
            "tools",
            "exposure",
            "pinned",
            "definitions",
            "tokens by the estimate",
            "% saved",
        ],
        rows,
    }
}

/// How many definitions there are in the list, and what they cost.
fn cost(exposure: Exposure, tools: &[&IndexedTool], pinned: usize) -> (usize, u64) {
    let kinds: BTreeMap<String, usize> = count_categories(tools.iter().copied());
    let own = exposure
        .meta_tools()
        .iter()
        .map(|tool| match (tool, exposure) {
            (MetaTool::Discover, Exposure::Categories) => {
                tool.definition_with(false, &describe_categories(&kinds))
            }
            _ => tool.definition(false),
        });
    // Spread over them, so that it is not two of one server.
    let step = tools.len() / pinned.max(1);
    let listed = tools.iter().enumerate().filter(|(n, _)| {
        let pinned = pinned > 0 && n % step == 0 && n / step < pinned;
        exposure.includes(pinned, false)
    });
    let listed = listed.map(|(_, tool)| tool.raw.to_string());
    let costs = own
        .chain(listed)
        .map(|text| token_cost::estimate_definition(&text));
    let costs: Vec<u64> = costs.collect();
    (costs.len(), costs.iter().sum())
}
