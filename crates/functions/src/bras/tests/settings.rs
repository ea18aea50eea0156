//! Settings that are refused, and the words that say why.

use netbricks_core::Registry;

use super::client::COMMON;
use super::negotiation::Users;

/// The error of wrong settings, with the text at its place.
fn refused(settings: &str) -> (String, String) {
    let mut registry = Registry::new();
    crate::register(&mut registry);
    match registry.get("bras").unwrap().blueprint(settings) {
        Ok(_) => panic!("these settings are taken: {settings}"),
        Err(error) => (error.message, error.span.map(|span| settings[span].to_owned()).unwrap_or_default()),
    }
}

#[test]
fn each_wrong_setting_is_named_with_what_was_expected() {
    let wrong = [
        ("authentication = []\nsessions = 300\n", "has 256 addresses for 300 sessions"),
        ("authentication = []\nprefixes = \"2001:db8::/62\"\n", "has 4 prefixes of 64 bits for 32 sessions"),
        ("authentication = []\nprefixes = \"2001:db8::1/62\"\n", "bits behind its length"),
        (
            "authentication = []\nprefixes = \"2001:db8::/59\"\naddress_v6 = \"2001:db8::1\"\n",
            "has 31 prefixes of 64 bits for 32 sessions",
        ),
        ("authentication = []\nprefixes = \"fe80::/48\"\n", "which hosts cannot have"),
        (
            "authentication = []\nprefixes = \"2001:db8::/64\"\ndns = [\"2001:db8::53\"]\n",
            "no prefix beside those of",
        ),
        ("authentication = []\nprefix_length = 65\n", "must be 16 to 64 bits"),
        ("authentication = []\nmru = 1501\n", "must be 576 to 1500 bytes"),
        ("authentication = []\nper_mac = 0\n", "must be 1 or more, found 0"),
        ("authentication = []\nkeepalive = \"1 ms\"\n", "must be \"100 ms\" to \"30 d\""),
        ("authentication = []\nname = \"\"\n", "must have 1 to 64 bytes"),
        ("authentication = []\ndns = [\"9.9.9.9\", \"9.9.9.8\", \"9.9.9.7\"]\n", "at most two addresses"),
        ("authentication = [\"pap\", \"pap\"]\n", "names a protocol twice"),
        ("", "needs `users` or `radius`"),
        ("authentication = []\nradius = [\"192.0.2.1\"]\n", "is not used without `authentication`"),
        ("radius = [\"192.0.2.1\"]\n", "needs `secret`"),
        ("radius = [\"nowhere\"]\n", "expected ADDRESS or ADDRESS:PORT"),
        ("users = \"/nowhere/users\"\n", "which cannot be used"),
    ];
    for (more, said) in wrong {
        let settings =
            COMMON.replace("sessions = 32\n", if more.contains("sessions") { "" } else { "sessions = 32\n" });
        let settings = settings
            .replace("name = \"test-ac\"\n", if more.contains("name") { "" } else { "name = \"test-ac\"\n" });
        let (message, _) = refused(&format!("{settings}{more}"));
        assert!(message.contains(said), "{more}: {message}");
    }
    let gateway = COMMON.replace("02:00:00:00:00:fe", "10.0.0.1");
    assert!(refused(&format!("{gateway}authentication = []\n")).0.contains("of another host"));
    // The gateway and a server are in the pool, and are given to no one.
    let inside = COMMON.replace("02:00:00:00:00:fe", "10.0.1.1").replace("10.0.1.0/24", "10.0.1.0/27");
    let inside = format!("{inside}authentication = []\ndns = [\"10.0.1.2\", \"192.0.2.53\"]\n");
    assert!(refused(&inside).0.contains("has 30 addresses for 32 sessions"));
    let (message, place) = refused(&COMMON.replace("core = \"core\"", "core = \"access\""));
    assert!(message.contains("another port") && place == "\"access\"", "{message} {place}");
    let overlapping = COMMON.replace("[\"10.0.1.0/24\"]", "[\"10.0.1.0/24\", \"10.0.1.200-10.0.2.3\"]");
    assert!(refused(&overlapping).0.contains("overlaps"));
}

#[test]
fn a_file_that_others_may_read_is_refused_and_wrong_lines_named() {
    let users = Users::new("lines", "alice\nbob secret-1 10.0.0.300\n");
    let (message, place) = refused(&format!("{COMMON}{}", users.setting()));
    assert!(
        message.contains("2 wrong lines") && message.contains(":1: ") && message.contains(":2: "),
        "{message}"
    );
    assert!(!message.contains("secret-1") && place.contains("netbricks-bras-lines"), "{message} {place}");
    let open = std::env::temp_dir().join(format!("netbricks-bras-open-{}", std::process::id()));
    std::fs::write(&open, "alice open-sesame\n").unwrap();
    {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o644)).unwrap();
    }
    let by_file = refused(&format!("{COMMON}users = {open:?}\n")).0;
    let by_radius = refused(&format!("{COMMON}radius = [\"192.0.2.1\"]\nsecret = {open:?}\n")).0;
    std::fs::remove_file(&open).unwrap();
    for message in [by_file, by_radius] {
        assert!(message.contains("mode 0644") && message.contains("chmod o-rw"), "{message}");
    }
    let empty = Users::new("empty", "\n");
    assert!(refused(&format!("{COMMON}{}", empty.setting())).0.contains("without users"));
    let setting = empty.setting().replace("users", "secret");
    assert!(refused(&format!("{COMMON}radius = [\"192.0.2.1\"]\n{setting}")).0.contains("is empty"));
}
