//! The part of the index that a search sees.

use std::ops::Range;

use crate::tools::index::entry::IndexedTool;
use crate::tools::index::request::IndexSearch;
use crate::tools::index::server_index::ServerIndex;
use crate::tools::index::vectors::Vector;
use crate::tools::index::vectors::scan::Probes;

/// No number: a tool that is not seen has none.
const HIDDEN: u32 = u32::MAX;

/// The tools that are seen, numbered by server and by their place in its list. All that is counted
/// is counted over these numbers, so what is hidden cannot be counted by mistake.
pub(super) struct VisibleTools<'a> {
    servers: Vec<VisibleServer<'a>>,
    /// Of each tool of each view.
    numbers: Vec<u32>,
    count: usize,
}

/// One server of which something is seen.
pub(super) struct VisibleServer<'a> {
    pub(super) server: &'a ServerIndex,
    /// Where the numbers of its tools stand.
    offset: usize,
    /// The first of them.
    first: usize,
    visible: usize,
}

impl<'a> VisibleTools<'a> {
    pub(super) fn new(
        servers: impl Iterator<Item = &'a ServerIndex>,
        search: &IndexSearch<'_>,
    ) -> Self {
        // Among equals, what is here comes before what is elsewhere.
        let (there, here): (Vec<_>, Vec<_>) = servers.partition(|server| server.server.is_remote());
        let mut scene = Self {
            servers: Vec::new(),
            numbers: Vec::new(),
            count: 0,
        };
        for server in here.into_iter().chain(there) {
            let (at, first) = (scene.numbers.len(), scene.count);
            for entry in &*server.entries {
                let seen = search.filter.matches(entry) && (search.is_visible)(entry);
                let number = u32::try_from(scene.count).expect("fewer tools than numbers");
                scene.numbers.push(if seen { number } else { HIDDEN });
                scene.count += usize::from(seen);
            }
            let seen = scene.count - first;
            // A server of which nothing is seen is not looked at again.
            if seen == 0 {
                scene.numbers.truncate(at);
                continue;
            }
            scene.servers.push(VisibleServer {
                server,
                offset: at,
                first,
                visible: seen,
            });
        }
        scene
    }

    /// How many tools are seen.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The tools of other nodes, or those of this one.
    pub(super) fn tools_by_origin(&self, nodes: bool) -> impl Iterator<Item = usize> {
        let views = self.servers.iter();
        let views = views.filter(move |view| view.server.server.is_remote() == nodes);
        views.flat_map(VisibleServer::visible_range)
    }

    pub(super) fn servers(&self) -> &[VisibleServer<'a>] {
        &self.servers
    }

    /// The number of one of a server's tools; none when it is not seen.
    pub(super) fn number(&self, view: &VisibleServer<'_>, tool: u32) -> Option<u32> {
        let number = self.numbers[view.offset + tool as usize];
        (number != HIDDEN).then_some(number)
    }

    /// How like each tool is to each of these, no number where it has no vector. Each vector is read
    /// once.
    pub(super) fn similarities(&self, probes: &Probes) -> Vec<Vec<f32>> {
        let mut columns = vec![vec![f32::NAN; self.count]; probes.scales().len()];
        let mut likeness = Vec::new();
        for view in &self.servers {
            let rows = &view.server.rows;
            rows.similarities(probes, &mut likeness);
            let numbers = &self.numbers[view.offset..];
            for (row, number) in likeness.chunks_exact(columns.len()).zip(numbers) {
                if *number == HIDDEN {
                    continue;
                }
                for (column, like) in columns.iter_mut().zip(row) {
                    column[*number as usize] = *like;
                }
            }
        }
        columns
    }

    /// The tool of that number.
    pub(super) fn entry(&self, number: usize) -> &'a IndexedTool {
        let (server, row) = self.locate(number);
        &server.entries[row]
    }

    /// Its vector, if it has one.
    pub(super) fn vector(&self, number: usize) -> Option<Vector> {
        let (server, row) = self.locate(number);
        server.rows.vector(row)
    }

    fn locate(&self, number: usize) -> (&'a ServerIndex, usize) {
        let after = self.servers.partition_point(|view| view.first <= number);
        let view = &self.servers[after - 1];
        let mut numbers = self.numbers[view.offset..].iter();
        let row = numbers.position(|other| *other as usize == number);
        (view.server, row.expect("each number is a tool's"))
    }
}

impl VisibleServer<'_> {
    /// The numbers of its tools that are seen.
    pub(super) fn visible_range(&self) -> Range<usize> {
        self.first..self.first + self.visible
    }
}
