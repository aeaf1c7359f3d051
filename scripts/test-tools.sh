#!/usr/bin/env bash
# Sees that the programs which tests compare with are there; installs them where that is possible.
# A test whose program is missing skips and says so, so this never fails.
set -uo pipefail

# What is looked for, and the Debian package that has it.
declare -A package_of=(
    [tcpdump]=tcpdump
    [tshark]=tshark
    [dumpcap]=wireshark-common
    [ip]=iproute2
    [ethtool]=ethtool
    [iptables]=iptables
    [setpriv]=util-linux
    [nfcapd]=nfdump
    [nfdump]=nfdump
    [zstd]=zstd
    [lz4]=lz4
    # Programs that run on our libpcap.so.
    [cc]=gcc
    [curl]=curl
    [ping]=iputils-ping
    [valgrind]=valgrind
    [nmap]=nmap
    [ngrep]=ngrep
    [tcpreplay]=tcpreplay
    [softflowd]=softflowd
    [tcpslice]=tcpslice
    [nfpcapd]=nfdump
    [arp-scan]=arp-scan
    # The browser of `tapline view`, and what drives it.
    [chromium]=chromium
    [node]=nodejs
    [sqlite3]=sqlite3
    # Readers of our man pages and completions.
    [man]=man-db
    [zsh]=zsh
    [fish]=fish
    # Reader of our metrics and alert rules.
    [prometheus]=prometheus
    [promtool]=prometheus
)

# Packages, and a Debian to install them in: `make test-packages`.
if [ "${1:-}" = packages ]; then
    package_of+=([lintian]=lintian [mmdebstrap]=mmdebstrap [rpmbuild]=rpm [musl-gcc]=musl-tools [pkg-config]=pkg-config)
fi

missing=()
for program in "${!package_of[@]}"; do
    PATH="$PATH:/usr/sbin:/sbin" command -v "$program" >/dev/null || missing+=("${package_of[$program]}")
done
# TLS to Kafka.
case "${1:-}" in packages | cluster) pkg-config --exists openssl 2>/dev/null || missing+=(libssl-dev) ;; esac
ldconfig -p 2>/dev/null | grep -q 'libpcap\.so\.' || missing+=(libpcap0.8)
# Python's users of libpcap, for Debian's own Python.
for module in scapy pcapy; do
    /usr/bin/python3 -c "import $module" 2>/dev/null || missing+=("python3-$module")
done

# What drives the browser, and looks whether everybody can use its pages: 18 MB from npm, which stay in the target folder.
node_folder="${CARGO_TARGET_DIR:-target}/node"
if command -v npm >/dev/null && [ ! -d "$node_folder/node_modules/axe-core" ]; then
    echo "installing for the tests, into $node_folder: playwright-core axe-core"
    mkdir -p "$node_folder"
    npm install --prefix "$node_folder" --silent --no-audit --no-fund playwright-core@1 axe-core@4 </dev/null >/dev/null 2>&1 ||
        echo "not installed: playwright-core, axe-core; tests in a browser will skip"
fi

# Engines that read our Parquet, for the Python that is first in PATH: they stay in the target folder, 400 MB with all that they need. CI asks for them.
if [ "${1:-}" = parquet ]; then
    python_modules="${CARGO_TARGET_DIR:-target}/python"
    wheels=(duckdb polars pyarrow)
    if ! PYTHONPATH="$python_modules" python3 -c "import ${wheels[0]}, ${wheels[1]}, ${wheels[2]}" 2>/dev/null; then
        echo "installing for the tests, into $python_modules: ${wheels[*]}"
        python3 -m pip install --quiet --no-compile --disable-pip-version-check --target "$python_modules" --upgrade "${wheels[@]}" </dev/null >/dev/null 2>&1 ||
            echo "not installed: ${wheels[*]}; tests that need them will skip"
    fi
fi

# Spark and ClickHouse for `make test-cluster`, 500 MB each, in the same folder; Spark wants Java 17 or newer.
if [ "${1:-}" = cluster ]; then
    python_modules="${CARGO_TARGET_DIR:-target}/python"
    wheels=(pyspark==4.3.0 pyarrow chdb)
    if ! PYTHONPATH="$python_modules" python3 -c "import pyspark, pyarrow, chdb" 2>/dev/null; then
        echo "installing for the tests, into $python_modules: ${wheels[*]}"
        python3 -m pip install --quiet --no-compile --disable-pip-version-check --target "$python_modules" --upgrade "${wheels[@]}" </dev/null >/dev/null 2>&1 ||
            echo "not installed: ${wheels[*]}; tests that need them will skip"
    fi
    command -v java >/dev/null || missing+=(openjdk-17-jre-headless)
    command -v kcat >/dev/null || missing+=(kcat)
    command -v pkg-config >/dev/null || missing+=(pkg-config)
    # A broker of Kafka: 100 MB of jars from Maven Central, which stay in the target folder.
    kafka_folder="$(realpath -m "${CARGO_TARGET_DIR:-target}/kafka")"
    if command -v mvn >/dev/null && ! compgen -G "$kafka_folder/kafka-server-*.jar" >/dev/null; then
        echo "fetching for the tests, into $kafka_folder: Kafka"
        mvn -q -B -f contrib/kafka/tests/pom.xml dependency:copy-dependencies "-DoutputDirectory=$kafka_folder" </dev/null >/dev/null 2>&1 ||
            echo "not fetched: Kafka; tests that need it will skip"
    fi
    command -v clickhouse-server >/dev/null || missing+=(clickhouse-server)
fi

[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
    echo "installing for the tests: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    install() { apt-get install -y -qq --no-install-recommends "$@" </dev/null >/dev/null; }
    apt-get update -qq </dev/null >/dev/null
    install "${missing[@]}" && exit 0
    # One that this release lacks must not keep the others out.
    for package in "${missing[@]}"; do
        install "$package" 2>/dev/null || echo "not installed: $package; tests that need it will skip"
    done
else
    echo "not installed: ${missing[*]}. Tests that need them will skip. On Debian, as root:"
    echo "    apt-get install ${missing[*]}"
fi
exit 0
