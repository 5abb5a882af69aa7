//! The maps and their file as claims.

use super::*;

use std::sync::atomic::{AtomicUsize, Ordering};

fn shape(tokens: u64) -> Shape {
    Shape { new: tokens, resident: tokens, running: 1, ..Shape::default() }
}

fn owner() -> Owner {
    ("card".to_owned(), "m".to_owned())
}

/// A file in a folder of its own, which goes with it.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("switchback-cliffs-{}-{number}", std::process::id())))
    }

    fn file(&self) -> PathBuf {
        self.0.join("state/cliffs.json")
    }

    fn maps(&self) -> CliffMaps {
        CliffMaps::open(Settings { file: Some(self.file()), learn: true, explore: false, floor: 20_000 })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn limit(maps: &CliffMaps, model: Option<&str>) -> Option<u64> {
    maps.region("card", model).hard(switchback_policies::cliff::Dimension::New)
}

#[test]
fn what_was_learned_is_there_after_a_restart_even_before_the_backend_says_what_it_serves() {
    let place = Place::new();
    let maps = place.maps();
    maps.survived(owner(), &shape(30_000));
    maps.died(owner(), &shape(60_000));
    maps.save();
    let again = place.maps();
    assert_eq!(*again.maps.lock(), *maps.maps.lock());
    assert_eq!((limit(&again, None), limit(&again, Some("m"))), (Some(54_000), Some(54_000)));
    assert_eq!(limit(&again, Some("another model on this port")), None);
}

#[test]
fn numbers_that_are_imported_while_the_proxy_runs_are_taken_over_and_not_overwritten() {
    let place = Place::new();
    let maps = place.maps();
    maps.survived(owner(), &shape(1000));
    let mut imported = Maps::new();
    imported.entry(owner()).or_default().died(&shape(50_000), 7, 20_000);
    write(&place.file(), &imported).unwrap();
    maps.save();
    assert_eq!(limit(&maps, Some("m")), Some(45_000));
    assert_eq!(read(&place.file()).unwrap(), *maps.maps.lock());
}

#[test]
fn a_damaged_file_is_moved_aside_and_what_is_learned_is_kept_all_the_same() {
    let place = Place::new();
    std::fs::create_dir_all(place.0.join("state")).unwrap();
    let aside = place.0.join("state/cliffs.json.damaged");
    for text in [&b"{"[..], b"", b"\xff\x00", b"{\"switchback_cliffs\": 1, \"backends\": [], \"x\": 1}"] {
        std::fs::write(place.file(), text).unwrap();
        let maps = place.maps();
        assert_eq!(std::fs::read(&aside).unwrap(), text);
        maps.died(owner(), &shape(60_000));
        maps.save();
        assert_eq!(limit(&place.maps(), Some("m")), Some(54_000));
        // So it is if somebody spoils it while the proxy runs.
        std::fs::write(place.file(), text).unwrap();
        maps.save();
        assert_eq!(limit(&place.maps(), Some("m")), Some(54_000));
    }
}

#[test]
fn a_file_of_another_format_and_what_is_no_file_are_left_alone_and_hold_nothing_up() {
    let place = Place::new();
    std::fs::create_dir_all(place.0.join("state")).unwrap();
    let other = "{\"switchback_cliffs\": 9, \"more\": []}";
    std::fs::write(place.file(), other).unwrap();
    let maps = place.maps();
    maps.died(owner(), &shape(60_000));
    maps.save();
    assert_eq!(std::fs::read_to_string(place.file()).unwrap(), other);
    assert_eq!(limit(&maps, Some("m")), Some(54_000), "it still learns");
    std::fs::remove_file(place.file()).unwrap();
    std::fs::create_dir_all(place.file()).unwrap();
    assert_eq!(
        read(&place.file()).unwrap_err().to_string(),
        format!("{}: is no file", place.file().display())
    );
    place.maps().save();
    assert!(place.file().is_dir());
}

#[test]
fn a_file_that_has_a_backend_twice_loses_none_of_its_deaths_unsaid() {
    let place = Place::new();
    std::fs::create_dir_all(place.0.join("state")).unwrap();
    let map = r#"{"backend":"card","model":"m","deaths":1,"new":{"deaths":[{"size":30000,"confidence":1.0,"at":1}]}}"#;
    std::fs::write(place.file(), format!(r#"{{"switchback_cliffs":1,"backends":[{map},{map}]}}"#)).unwrap();
    let why = file::read(&place.file()).unwrap_err().to_string();
    assert!(why.contains("card") && why.contains("twice"), "{why}");
}

#[test]
fn sizes_keep_their_step_in_the_file() {
    let mut maps = Maps::new();
    for size in [1, 2, 3, 7, 100, 12_345, 262_144, 1_000_000] {
        maps.entry(owner()).or_default().survived(&shape(size));
    }
    let place = Place::new();
    write(&place.file(), &maps).unwrap();
    assert_eq!(read(&place.file()).unwrap(), maps);
}

#[test]
fn speeds_are_kept_beside_the_maps_and_a_file_with_numbers_that_are_none_is_moved_aside() {
    use switchback_policies::facts::Speed;
    use switchback_policies::speed::Reading;
    let place = Place::new();
    let mut learner = Learner::default();
    learner.read(Speed::USUAL, Reading { prompt: 20_000, believed: 0, cached: Some(0), seconds: 9.0 });
    let maps = place.maps();
    maps.is_fast(owner(), learner.clone());
    maps.save();
    assert_eq!(place.maps().speed(&owner()), Some(learner));
    let file = place.file().with_file_name("speeds.json");
    let text = std::fs::read_to_string(&file).expect("a file").replace("\"reuse\": 1.0", "\"reuse\": 7.5");
    std::fs::write(&file, &text).expect("written");
    let maps = place.maps();
    assert_eq!(maps.speed(&owner()), None);
    let aside = place.file().with_file_name("speeds.json.damaged");
    assert_eq!(std::fs::read_to_string(aside).expect("a file"), text);
    maps.is_fast(owner(), Learner::default());
    maps.save();
    assert_eq!(place.maps().speed(&owner()), Some(Learner::default()));
}

#[test]
fn load_times_are_kept_across_restarts_and_a_file_with_one_that_is_none_is_moved_aside() {
    let place = Place::new();
    let maps = place.maps();
    maps.took("a", Duration::from_millis(42_500));
    maps.save();
    assert_eq!(place.maps().load_time("a"), Some(Duration::from_millis(42_500)));
    assert_eq!(place.maps().load_time("b"), None);
    let file = place.file().with_file_name("speeds.json");
    for none in ["-1.0", "1e300", "90000.0"] {
        let text = std::fs::read_to_string(&file).expect("a file");
        let wrong = text.replace("42.5", none);
        std::fs::write(&file, &wrong).expect("written");
        let maps = place.maps();
        assert_eq!(maps.load_time("a"), None);
        let aside = file.with_file_name("speeds.json.damaged");
        assert_eq!(std::fs::read_to_string(aside).expect("a file"), wrong);
        maps.took("a", Duration::from_secs(1));
        maps.save();
        assert_eq!(place.maps().load_time("a"), Some(Duration::from_secs(1)));
        std::fs::write(&file, &text).expect("written");
    }
}
