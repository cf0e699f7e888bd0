//! Groups of cases for one plot: cases with names that differ in one number.

use super::curve::{Curve, Series};
use crate::measured::{Case, Line};

/// Varied parameters in the names of cases, such as "senders: 4", "8 queues" or "1 channel".
const COUNTED: [&str; 8] =
    ["channel", "sender", "worker", "queue", "flow", "stream", "core", "connection"];
/// Suffixes of the names of distributions.
const PERCENTILES: [&str; 7] = ["min", "p50", "p90", "p99", "p99.9", "p99.99", "max"];

/// Position of a case on an axis: the axis, the rest of the name, and the value as text and number.
#[derive(Clone, Debug, PartialEq)]
struct Place {
    axis: String,
    rest: String,
    tick: String,
    order: f64,
}

/// All plots of a section. The varied parameter is in the names of the cases or in those of the
/// contenders.
pub(crate) fn curves(cases: &[Case]) -> Vec<Curve> {
    let mut groups: Vec<(String, Vec<(Place, &Case)>)> = Vec::new();
    for case in cases.iter().filter(|case| contenders(case).is_none()) {
        for place in places(case) {
            let key = format!("{}|{}|{}", place.axis, place.rest, case.unit.kind);
            match groups.iter_mut().find(|(known, _)| *known == key) {
                Some((_, group)) => group.push((place, case)),
                None => groups.push((key, vec![(place, case)])),
            }
        }
    }
    let varied = groups.into_iter().filter(|(_, group)| ticks(group).len() > 1);
    let mut curves: Vec<Curve> = varied.map(|(_, group)| of_cases(&group)).collect();
    curves.extend(of_contenders(cases));
    curves
}

/// Axes on which a case has a position.
fn places(case: &Case) -> Vec<Place> {
    let bytes = case.unit.bytes.and_then(|bytes| {
        let said = format!("{bytes} B");
        let rest = case.name.contains(&said).then(|| case.name.replacen(&said, "", 1))?;
        let axis = "bytes of a frame".to_owned();
        Some(Place { axis, rest, tick: bytes.to_string(), order: bytes as f64 })
    });
    bytes.into_iter().chain(counted(&case.name)).chain(percentile(&case.name)).collect()
}

/// Parses "senders: 4", "4 senders" or "1 sender" in a name; `None` if the name contains no such
/// words.
fn counted(name: &str) -> Option<Place> {
    let words: Vec<&str> = name.split(' ').collect();
    let bare = |word: &str| word.trim_end_matches([',', ':']).to_owned();
    words.iter().enumerate().find_map(|(at, word)| {
        let word = bare(word);
        let singular = word.strip_suffix('s').unwrap_or(&word);
        let what = COUNTED.iter().find(|what| **what == singular)?;
        let number = |at: usize| bare(words.get(at)?).parse::<u32>().ok().map(|n| (at, n));
        let before = at.checked_sub(1).and_then(number);
        let (place, count) =
            before.or_else(|| words[at].ends_with(':').then(|| number(at + 1))?)?;
        let rest = words.iter().enumerate().filter(|(other, _)| *other != place && *other != at);
        let rest: Vec<&str> = rest.map(|(_, word)| *word).collect();
        let (axis, rest) = (format!("{what}s"), rest.join(" "));
        Some(Place { axis, rest, tick: count.to_string(), order: f64::from(count) })
    })
}

/// Parses "ping: p99" or "ping, p99"; `None` if the name does not end in a percentile.
fn percentile(name: &str) -> Option<Place> {
    let (rest, end) = name.rsplit_once(' ')?;
    let order = PERCENTILES.iter().position(|known| *known == end)? as f64;
    let axis = "percentile".to_owned();
    Some(Place { axis, rest: rest.to_owned(), tick: end.to_owned(), order })
}

/// Distinct values of a group in ascending order.
fn ticks(group: &[(Place, &Case)]) -> Vec<String> {
    let mut places: Vec<&Place> = group.iter().map(|(place, _)| place).collect();
    places.sort_by(|a, b| a.order.total_cmp(&b.order));
    places.dedup_by(|a, b| a.tick == b.tick);
    places.into_iter().map(|place| place.tick.clone()).collect()
}

fn of_cases(group: &[(Place, &Case)]) -> Curve {
    let ticks = ticks(group);
    let (place, first) = &group[0];
    let (scale, unit) = first.unit.shown();
    let mut series: Vec<Series> = Vec::new();
    for (place, case) in group {
        let Some(tick) = ticks.iter().position(|tick| *tick == place.tick) else { continue };
        for line in &case.lines {
            add(&mut series, &line.who, tick, line, scale);
        }
    }
    let title = place.rest.trim_matches([' ', ',', ':']).to_owned();
    Curve { title, axis: place.axis.clone(), ticks, unit: unit.to_owned(), series: sorted(series) }
}

/// Positions of contenders that are values of the varied parameter ("64 channels", "1 channel").
/// `None` unless there are at least two contenders and all of them are such values.
fn contenders(case: &Case) -> Option<Vec<(Place, &Line)>> {
    let places: Option<Vec<_>> =
        case.lines.iter().map(|line| Some((counted(&line.who)?, line))).collect();
    places.filter(|places| places.len() > 1)
}

/// Plots of cases with contenders that are values of the varied parameter: one plot per axis and
/// unit, with a line for each case.
fn of_contenders(cases: &[Case]) -> Vec<Curve> {
    let mut groups: Vec<(String, Vec<(Place, &Case)>)> = Vec::new();
    for case in cases {
        for (place, _) in contenders(case).into_iter().flatten() {
            let key = format!("{}|{}", place.axis, case.unit.kind);
            match groups.iter_mut().find(|(known, _)| *known == key) {
                Some((_, group)) => group.push((place, case)),
                None => groups.push((key, vec![(place, case)])),
            }
        }
    }
    groups.into_iter().map(|(_, group)| by_contenders(&group)).collect()
}

fn by_contenders(group: &[(Place, &Case)]) -> Curve {
    let ticks = ticks(group);
    let (first, case) = &group[0];
    let (scale, unit) = case.unit.shown();
    let mut series: Vec<Series> = Vec::new();
    for (place, case) in group {
        let own = contenders(case).into_iter().flatten().find(|(other, _)| other == place);
        let tick = ticks.iter().position(|tick| *tick == place.tick);
        if let (Some(tick), Some((_, line))) = (tick, own) {
            add(&mut series, &case.name, tick, line, scale);
        }
    }
    let (axis, unit) = (first.axis.clone(), unit.to_owned());
    Curve { title: String::new(), axis, ticks, unit, series: sorted(series) }
}

fn add(series: &mut Vec<Series>, name: &str, tick: usize, line: &Line, scale: f64) {
    let Some(figure) = line.all.map(|figure| figure.map(|value| value / scale)) else { return };
    match series.iter_mut().find(|series| series.name == name) {
        Some(series) => series.points.push((tick, figure)),
        None => series.push(Series { name: name.to_owned(), points: vec![(tick, figure)] }),
    }
}

fn sorted(mut series: Vec<Series>) -> Vec<Series> {
    for one in &mut series {
        one.points.sort_by_key(|(tick, _)| *tick);
    }
    series
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    // Goal: counts are found in every notation that the sections use.
    #[test]
    fn counts_are_found() {
        let said = |name: &str| counted(name).map(|p| (p.axis, p.tick, p.rest));
        let of = |axis: &str, tick: &str, rest: &str| {
            Some((axis.to_owned(), tick.to_owned(), rest.to_owned()))
        };
        assert_eq!(said("sink of any speed, senders: 4"), of("senders", "4", "sink of any speed,"));
        assert_eq!(said("1 channel"), of("channels", "1", ""));
        assert_eq!(said("small, 8 queues, x"), of("queues", "8", "small, x"));
        assert_eq!(said("link 64 B"), None);
        assert_eq!(said("flows of any kind"), None);
        assert_eq!(percentile("ping: p99").unwrap().tick, "p99");
        assert_eq!(percentile("TCP_RR, p99.9").unwrap().rest, "TCP_RR,");
        assert_eq!(percentile("ping: Jain"), None);
    }

    // Goal: the sections of the project give the expected plots.
    #[test]
    fn sections_make_pictures() {
        let count = |section: &str, axis: &str| {
            let curves = curves(&fixture::cases(section));
            curves.iter().filter(|curve| curve.axis == axis).count()
        };
        assert_eq!(count("link", "bytes of a frame"), 1);
        assert_eq!(count("channels", "channels"), 1);
        // The 14 groups: device and driver, split and packed, in two directions; the driver with
        // checksums; mqnet's driver with two devices; guest to guest.
        assert_eq!(count("vhost", "bytes of a frame"), 14);
        // Nanoseconds per frame and frames per second, each for 1 to 64 channels.
        assert_eq!(count("scaling", "channels"), 2);
        assert_eq!(count("scaling", "workers"), 1);
        // The six groups: bare frames, two gaps, TCP_RR, TCP_RR with a bulk flow, TCP_RR with a
        // bulk flow and unpinned ends.
        assert_eq!(count("latency", "percentile"), 6);
        assert_eq!(count("queueing", "senders"), 2);
        assert_eq!(count("queueing", "percentile"), 1);
        assert_eq!(count("rxbuf", "flows"), 1);
        assert!(curves(&fixture::cases("pool")).is_empty());
    }

    // Goal: contenders that are values of a parameter give one plot for each parameter, with a line
    // for each case. Numbers in the names of the cases are not used.
    #[test]
    fn contenders_make_pictures() {
        let case = |name: &str, kind, bytes, what: &str| {
            let [one, two] = [1, 2].map(|n| format!("{n} {what}"));
            let contenders = [(one.as_str(), &[1.0][..]), (two.as_str(), &[2.0][..])];
            fixture::case(name, kind, bytes, &contenders)
        };
        let curves = curves(&[
            case("workers with a channel each, 64 B", "frames", Some(64), "workers"),
            case("channels on one worker, 64 B", "nanoseconds", None, "channels"),
            case("workers with a channel each, 1514 B", "frames", Some(1514), "workers"),
            case("channels on one worker, 1514 B", "nanoseconds", None, "channels"),
        ]);
        let said: Vec<_> =
            curves.iter().map(|c| (c.axis.as_str(), c.series.len(), c.ticks.len())).collect();
        assert_eq!(said, [("workers", 2, 2), ("channels", 2, 2)]);
        let names = ["p50", "p99.9"].map(|p| format!("64 B there and back over a link, {p}"));
        let latency = names.map(|name| fixture::case(&name, "latency", None, &[("a", &[1e3])]));
        let curves = super::curves(&latency);
        assert_eq!((curves.len(), curves[0].unit.as_str()), (1, "µs"));
    }

    // Goal: ticks are in the order of their values, and each contender's figure is at its tick.
    #[test]
    fn points_are_at_their_ticks() {
        let case = |bytes, rate| {
            let name = format!("link {bytes} B");
            fixture::case(&name, "frames", Some(bytes), &[("mqnet", &[rate])])
        };
        let curves = curves(&[case(9000, 2e6), case(64, 9e6), case(1514, 5e6)]);
        let [curve] = curves.as_slice() else { panic!("{curves:?}") };
        assert_eq!(curve.ticks, ["64", "1514", "9000"]);
        let medians: Vec<_> = curve.series[0].points.iter().map(|(t, f)| (*t, f.median)).collect();
        assert_eq!(medians, [(0, 9.0), (1, 5.0), (2, 2.0)]);
        assert_eq!((curve.title.as_str(), curve.unit.as_str()), ("link", "Mpps"));
    }
}
