use mqnet_control_api::LinkInfo;
use proptest::prelude::*;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::*;
use crate::stats::fixture::{FakeApi, link, stats};

fn reading(seconds: u64, link: &LinkInfo) -> Sample {
    let ran = [|_| Some(1_000_000_000), |_| Some(1_500_000_000)];
    let mut link = link.clone();
    for worker in &mut link.workers {
        worker.tid = (worker.id == 0).then_some(99);
    }
    Sample::new(vec![stats(seconds)], &[link], ran[usize::from(seconds > 1)])
}

fn app() -> App {
    let mut app = App::new();
    app.take(reading(1, &link("up")));
    app.take(reading(2, &link("up")));
    app
}

fn screen(app: &App, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| app.draw(frame)).unwrap();
    let content = &terminal.backend().buffer().content;
    let line = |cells: &[ratatui::buffer::Cell]| {
        cells.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned()
    };
    content.chunks(usize::from(width)).map(line).collect()
}

fn press(app: &mut App, code: KeyCode) -> After {
    app.key(KeyEvent::new(code, KeyModifiers::NONE))
}

// Goal: the whole display at 80x24, with every column in its position and the busiest lane first.
#[test]
fn the_picture() {
    let lines = screen(&app(), 80, 24);
    let expected = [
        "mqnet top  4 lanes, 1 stopped  both directions  by frames/s",
        "total 300.1 k frames/s, 2.40 Gb/s, 4 stops/s, 10 drops/s",
        " ch lane                 frames/s   Gb/s stops/s drops/s stop% flight  cpu load%",
        "  1 vm0 -> ntb0           200.0 k   1.60       4       0    25      1    3     -",
        "  0 vm0 -> ntb0           100.0 k   0.80       0      10     0      0    2    50",
        "  0 ntb0 -> vm0                50   0.00       0       0     0      0    2    50",
        "  1 ntb0 -> vm0                 0   0.00       0       0     0      0    3     -",
    ];
    assert_eq!(lines[..expected.len()], expected);
    assert!(lines[7..23].iter().all(String::is_empty));
    assert_eq!(lines[23], "q quit  s/arrows sort  r reverse  a direction  p pause  ? help");
}

// Goal: each key has the effect that the help describes.
#[test]
fn keys() {
    let mut app = app();
    let first = |app: &App| screen(app, 80, 24)[3].clone();
    press(&mut app, KeyCode::Char('r'));
    assert!(first(&app).starts_with("  1 ntb0 -> vm0"));
    press(&mut app, KeyCode::Char('r'));
    for _ in 0..3 {
        press(&mut app, KeyCode::Right);
    }
    assert!(screen(&app, 80, 24)[0].ends_with("by drops/s"));
    assert!(first(&app).starts_with("  0 vm0 -> ntb0"));
    press(&mut app, KeyCode::Left);
    press(&mut app, KeyCode::Char('s'));
    assert!(screen(&app, 80, 24)[0].ends_with("by drops/s"));
    press(&mut app, KeyCode::Char('a'));
    assert!(screen(&app, 80, 24)[0].contains("2 lanes, 1 stopped  a to b"));
    press(&mut app, KeyCode::Char('a'));
    assert!(screen(&app, 80, 24)[0].contains("2 lanes, 0 stopped  b to a"));
    press(&mut app, KeyCode::Char('a'));
    press(&mut app, KeyCode::Char('p'));
    assert!(app.is_paused() && screen(&app, 80, 24)[0].ends_with("PAUSED"));
    press(&mut app, KeyCode::Char('?'));
    assert!(screen(&app, 80, 24).join("\n").contains("this help"));
    assert_eq!(press(&mut app, KeyCode::Esc), After::GoOn);
    press(&mut app, KeyCode::PageDown);
    assert!(screen(&app, 80, 24)[4].is_empty(), "scrolled to the last row");
    press(&mut app, KeyCode::Home);
    assert_eq!(press(&mut app, KeyCode::Esc), After::Quit);
    assert_eq!(press(&mut app, KeyCode::Char('q')), After::Quit);
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(app.key(interrupt), After::Quit);
}

// Goal: the last line shows the reason of a link that is down; a later error replaces the reason.
#[test]
fn errors_are_shown() {
    let mut app = app();
    app.take(reading(3, &link("down")));
    assert_eq!(screen(&app, 80, 24)[23], "vm0: the peer has ended");
    app.set_note("it has gone".into());
    assert_eq!(screen(&app, 80, 24)[23], "it has gone");
}

// Goal: without a terminal, one display is printed as text, with every lane.
#[test]
fn one_picture_as_text() {
    let path = "/v1/links/ntb0/stats";
    let api =
        FakeApi::default().on("/v1/links", vec![link("up")]).on(path, stats(1)).on(path, stats(2));
    let interval = Duration::from_millis(1);
    let mut out = Vec::new();
    let args = TopArgs { name: Some("ntb0".into()), interval, once: true };
    run(&args, &api, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert_eq!(text.lines().count(), 8, "{text}");
    assert!(text.contains("  1 vm0 -> ntb0           200.0 k   1.60"));
}

mod terminal;

proptest! {
    // Goal: no terminal size and no sequence of keys causes a panic.
    #[test]
    fn any_size_any_keys(
        width in 1u16..200,
        height in 1u16..60,
        keys in proptest::collection::vec("[srap?qh ]", 0..20),
        down in 0usize..9,
    ) {
        let mut app = app();
        for key in keys {
            press(&mut app, KeyCode::Char(key.chars().next().unwrap()));
            screen(&app, width, height);
        }
        for _ in 0..down {
            press(&mut app, KeyCode::Down);
        }
        screen(&app, width, height);
    }
}
