//! The part of the index that a search sees.

use std::ops::Range;

use crate::tools::index::entry::IndexedTool;
use crate::tools::index::request::IndexSearch;
use crate::tools::index::server_index::ServerIndex;
use crate::tools::index::vectors::Vector;
use crate::tools::index::vectors::scan::Probes;

/// No number: a tool that is not seen has none.
const UNSEEN: u32 = u32::MAX;

/// The tools that are seen, numbered by server and by their place in its list. All that is counted
/// is counted over these numbers, so what is hidden cannot be counted by mistake.
pub(super) struct VisibleTools<'a> {
    views: Vec<SeenServer<'a>>,
    /// Of each tool of each view.
    numbers: Vec<u32>,
    count: usize,
}

/// One server of which something is seen.
pub(super) struct SeenServer<'a> {
    pub(super) server: &'a ServerIndex,
    /// Where the numbers of its tools stand.
    at: usize,
    /// The first of them.
    first: usize,
    seen: usize,
}

impl<'a> VisibleTools<'a> {
    pub(super) fn of(
        servers: impl Iterator<Item = &'a ServerIndex>,
        search: &IndexSearch<'_>,
    ) -> Self {
        // Among equals, what is here comes before what is elsewhere.
        let (there, here): (Vec<_>, Vec<_>) =
            servers.partition(|server| server.server.is_of_node());
        let mut scene = Self {
            views: Vec::new(),
            numbers: Vec::new(),
            count: 0,
        };
        for server in here.into_iter().chain(there) {
            let (at, first) = (scene.numbers.len(), scene.count);
            for entry in &*server.entries {
                let seen = search.filter.takes(entry) && (search.visible)(entry);
                let number = u32::try_from(scene.count).expect("fewer tools than numbers");
                scene.numbers.push(if seen { number } else { UNSEEN });
                scene.count += usize::from(seen);
            }
            let seen = scene.count - first;
            // A server of which nothing is seen is not looked at again.
            if seen == 0 {
                scene.numbers.truncate(at);
                continue;
            }
            scene.views.push(SeenServer {
                server,
                at,
                first,
                seen,
            });
        }
        scene
    }

    /// How many tools are seen.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The tools of other nodes, or those of this one.
    pub(super) fn seen_of(&self, nodes: bool) -> impl Iterator<Item = usize> {
        let views = self.views.iter();
        let views = views.filter(move |view| view.server.server.is_of_node() == nodes);
        views.flat_map(SeenServer::seen)
    }

    pub(super) fn views(&self) -> &[SeenServer<'a>] {
        &self.views
    }

    /// The number of one of a server's tools; none when it is not seen.
    pub(super) fn number(&self, view: &SeenServer<'_>, tool: u32) -> Option<u32> {
        let number = self.numbers[view.at + tool as usize];
        (number != UNSEEN).then_some(number)
    }

    /// How like each tool is to each of these, no number where it has no vector. Each vector is read
    /// once.
    pub(super) fn likeness(&self, probes: &Probes) -> Vec<Vec<f32>> {
        let mut columns = vec![vec![f32::NAN; self.count]; probes.units().len()];
        let mut likeness = Vec::new();
        for view in &self.views {
            let rows = &view.server.rows;
            rows.likeness(probes, &mut likeness);
            let numbers = &self.numbers[view.at..];
            for (row, number) in likeness.chunks_exact(columns.len()).zip(numbers) {
                if *number == UNSEEN {
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
        let (server, row) = self.place(number);
        &server.entries[row]
    }

    /// Its vector, if it has one.
    pub(super) fn vector(&self, number: usize) -> Option<Vector> {
        let (server, row) = self.place(number);
        server.rows.vector(row)
    }

    fn place(&self, number: usize) -> (&'a ServerIndex, usize) {
        let after = self.views.partition_point(|view| view.first <= number);
        let view = &self.views[after - 1];
        let mut numbers = self.numbers[view.at..].iter();
        let row = numbers.position(|other| *other as usize == number);
        (view.server, row.expect("each number is a tool's"))
    }
}

impl SeenServer<'_> {
    /// The numbers of its tools that are seen.
    pub(super) fn seen(&self) -> Range<usize> {
        self.first..self.first + self.seen
    }
}
