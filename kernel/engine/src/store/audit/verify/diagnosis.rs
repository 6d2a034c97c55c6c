//! From the runs of a log to the fewest wounds that explain them: what stands in order stays, the rest
//! was moved or stands twice, and what is nowhere was removed or is one of the broken lines.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::{Head, LogFault, MAX_SPANS, Report, Run, SegmentOffset, Span};
use crate::store::audit::record::RecordDigest;

/// A run, or a part of one, with its place in the order of the file.
#[derive(Clone, Copy)]
struct Piece {
    run: Run,
    position: usize,
}

/// A broken line, by its place in the order of the file.
type DamagedLine = (usize, SegmentOffset, Option<u64>);

pub(super) fn diagnose(spans: &[Span], trimmed: Option<Head>, known: Option<Head>) -> Report {
    let mut faults = Vec::new();
    let pieces = split_runs(spans);
    if pieces.len() > 2 * MAX_SPANS {
        faults.push(LogFault::TooMany {
            place: pieces[0].run.place,
        });
        return build_report(&BTreeMap::new(), faults);
    }
    let order = longest_ordered(&pieces);
    let mut standing: BTreeMap<u64, Piece> = BTreeMap::new();
    for at in &order {
        standing.insert(pieces[*at].run.first, pieces[*at]);
    }
    for (_, piece) in (0..).zip(&pieces).filter(|(at, _)| !order.contains(at)) {
        let Run {
            first: from,
            last: to,
            place,
            ..
        } = piece.run;
        if let Entry::Vacant(empty) = standing.entry(from) {
            empty.insert(*piece);
            faults.push(LogFault::Moved { from, to, place });
        } else {
            faults.push(LogFault::Duplicated { from, to, place });
        }
    }
    let start = find_start(&standing, trimmed, &mut faults);
    let mut broken: Vec<DamagedLine> = damaged_lines(spans);
    let kept: Vec<Piece> = order.iter().map(|at| pieces[*at]).collect();
    report_gaps(&kept, &standing, start, known, &mut broken, &mut faults);
    for (_, place, _) in broken {
        faults.push(LogFault::Foreign { place });
    }
    check_links(&standing, &mut faults);
    build_report(&standing, faults)
}

fn build_report(standing: &BTreeMap<u64, Piece>, faults: Vec<LogFault>) -> Report {
    let records = standing.values().map(|p| p.run.last - p.run.first + 1);
    let last = standing.values().next_back();
    let head = last.and_then(|p| {
        Some(Head {
            sequence: p.run.last,
            hash: p.run.hash?,
        })
    });
    Report {
        records: records.sum(),
        head: head.unwrap_or(Head::START),
        faults,
        acknowledged: Vec::new(),
        damage: Vec::new(),
    }
}

/// Runs divided where others begin or end, so that two pieces are the same numbers or have none in common.
fn split_runs(spans: &[Span]) -> Vec<Piece> {
    let mut cuts = BTreeSet::new();
    let runs = |span: &Span| match span {
        Span::Run(run) => Some(*run),
        Span::Damaged(..) => None,
    };
    for run in spans.iter().filter_map(runs) {
        cuts.insert(run.first);
        cuts.insert(run.last.saturating_add(1));
    }
    let mut pieces = Vec::new();
    for (at, span) in spans.iter().enumerate() {
        let Some(whole) = runs(span) else { continue };
        let mut first = whole.first;
        let inner = cuts.range(whole.first..=whole.last).skip(1);
        let ends: Vec<u64> = inner.map(|cut| cut - 1).chain([whole.last]).collect();
        for last in ends {
            let run = Run {
                first,
                last,
                previous: whole.previous.filter(|_| first == whole.first),
                hash: whole.hash.filter(|_| last == whole.last),
                place: whole.place,
            };
            pieces.push(Piece { run, position: at });
            first = last.saturating_add(1);
            if pieces.len() > 2 * MAX_SPANS {
                return pieces;
            }
        }
    }
    pieces
}

/// The pieces that stand in order when as few records as possible are called moved.
fn longest_ordered(pieces: &[Piece]) -> BTreeSet<usize> {
    let mut best: Vec<(u64, Option<usize>)> = Vec::with_capacity(pieces.len());
    for (at, piece) in pieces.iter().enumerate() {
        let before = (0..at)
            .filter(|b| pieces[*b].run.last < piece.run.first)
            // Of equals the later one: it leaves fewer numbers between.
            .max_by_key(|b| best[*b].0);
        let weight = piece.run.last - piece.run.first + 1;
        best.push((weight + before.map_or(0, |b| best[b].0), before));
    }
    let mut order = BTreeSet::new();
    let mut next = (0..pieces.len()).max_by_key(|at| best[*at].0);
    while let Some(at) = next {
        order.insert(at);
        next = best[at].1;
    }
    order
}

fn damaged_lines(spans: &[Span]) -> Vec<DamagedLine> {
    let lines = spans.iter().enumerate();
    lines
        .filter_map(|(at, span)| match span {
            Span::Damaged(place, stated) => Some((at, *place, *stated)),
            Span::Run(_) => None,
        })
        .collect()
}

/// The number the log should begin with.
fn find_start(
    standing: &BTreeMap<u64, Piece>,
    trimmed: Option<Head>,
    faults: &mut Vec<LogFault>,
) -> u64 {
    let Some(piece) = standing.values().next() else {
        return trimmed.map_or(1, |t| t.sequence + 1);
    };
    let first = piece.run.first;
    let anchor = trimmed.unwrap_or(Head::START);
    // The trimming was written down, and the kernel ended before all of it was done.
    let unfinished = first <= anchor.sequence;
    let other = piece.run.previous.is_some_and(|p| p != anchor.hash);
    if !unfinished && first == anchor.sequence + 1 && other {
        faults.push(LogFault::Unanchored { first });
    }
    if unfinished {
        first
    } else {
        anchor.sequence + 1
    }
}

/// Names what is in no piece: a broken line that stands where it should be, or nothing.
fn report_gaps(
    kept: &[Piece],
    standing: &BTreeMap<u64, Piece>,
    start: u64,
    known: Option<Head>,
    broken: &mut Vec<DamagedLine>,
    faults: &mut Vec<LogFault>,
) {
    let (mut next, mut after) = (start, 0);
    for piece in kept {
        let missing = missing_ranges(standing, next, piece.run.first);
        let rest = report_changed(missing, after..piece.position, broken, faults);
        report_removed(rest, faults, |from, to| LogFault::Removed { from, to });
        (next, after) = (piece.run.last.saturating_add(1), piece.position);
    }
    // Nothing says how many there were behind the last, but what is known and what stands there broken.
    let lines = broken.iter().filter(|b| b.0 >= after).count() as u64;
    let last = known
        .map_or(0, |k| k.sequence)
        .max(next.saturating_add(lines) - 1);
    let missing = missing_ranges(standing, next, last.saturating_add(1));
    let rest = report_changed(missing, after..usize::MAX, broken, faults);
    let truth = known.map_or(0, |k| k.sequence);
    let rest = rest.into_iter().flat_map(|r| clip(r, truth)).collect();
    report_removed(rest, faults, |from, to| LogFault::Truncated { from, to });
}

/// Ranges of numbers from `from` up to, not with, `to` that stand nowhere.
fn missing_ranges(standing: &BTreeMap<u64, Piece>, from: u64, to: u64) -> Vec<(u64, u64)> {
    let mut out = Vec::new();
    let mut next = from;
    for piece in standing.range(from..to.max(from)).map(|(_, p)| p.run) {
        if next < piece.first {
            out.push((next, piece.first - 1));
        }
        next = piece.last.saturating_add(1);
    }
    if next < to {
        out.push((next, to - 1));
    }
    out
}

/// Gives each broken line among `within` a number that is missing there: the one it still shows when
/// that fits, else the first.
fn report_changed(
    mut missing: Vec<(u64, u64)>,
    within: std::ops::Range<usize>,
    broken: &mut Vec<DamagedLine>,
    faults: &mut Vec<LogFault>,
) -> Vec<(u64, u64)> {
    broken.retain(|(at, place, stated)| {
        let fits = |n: &u64| missing.iter().any(|(from, to)| (*from..=*to).contains(n));
        let first = missing.first().map(|r| r.0);
        let Some(sequence) = stated
            .filter(fits)
            .or(first)
            .filter(|_| within.contains(at))
        else {
            return true;
        };
        missing = missing
            .iter()
            .flat_map(|(from, to)| {
                if (*from..=*to).contains(&sequence) {
                    [(*from, sequence - 1), (sequence + 1, *to)]
                } else {
                    [(*from, *to), (1, 0)]
                }
            })
            .filter(|(from, to)| from <= to)
            .collect();
        faults.push(LogFault::Changed {
            sequence,
            place: *place,
        });
        false
    });
    missing
}

fn clip((from, to): (u64, u64), last: u64) -> Option<(u64, u64)> {
    (from <= last).then(|| (from, to.min(last)))
}

fn report_removed(
    ranges: Vec<(u64, u64)>,
    faults: &mut Vec<LogFault>,
    fault: impl Fn(u64, u64) -> LogFault,
) {
    faults.extend(ranges.into_iter().map(|(from, to)| fault(from, to)));
}

/// A record whose successor remembers another hash was written anew, with a hash that fits.
fn check_links(standing: &BTreeMap<u64, Piece>, faults: &mut Vec<LogFault>) {
    let mut before: Option<(u64, Option<RecordDigest>, SegmentOffset)> = None;
    for piece in standing.values().map(|p| p.run) {
        if let Some((sequence, Some(hash), place)) = before
            && sequence.checked_add(1) == Some(piece.first)
            && piece.previous.is_some_and(|p| p != hash)
        {
            faults.push(LogFault::Changed { sequence, place });
        }
        before = Some((piece.last, piece.hash, piece.place));
    }
}
