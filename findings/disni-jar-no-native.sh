#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# com.ibm.disni:disni 2.1 of Maven Central, 28 November 2026.
#
# DiSNI, RDMA for Java, calls libdisni. The jar has none, its POM names no artifact that has, and the message about
# that comes when the first endpoint group is made. Who depends on the jar has to build libdisni from source:
#
#   0 native libraries of 101 entries
#   no disni in java.library.path: /nowhere
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
mvn -q -B -Dmaven.repo.local="$folder/m2" dependency:get -Dartifact=com.ibm.disni:disni:2.1 >/dev/null
mvn -q -B -Dmaven.repo.local="$folder/m2" dependency:copy -Dartifact=com.ibm.disni:disni:2.1 -DoutputDirectory="$folder" >/dev/null
mvn -q -B -Dmaven.repo.local="$folder/m2" dependency:copy -Dartifact=org.slf4j:slf4j-api:1.7.12 -DoutputDirectory="$folder" >/dev/null
natives=$(python3 -m zipfile -l disni-2.1.jar | grep -cE '\.(so|dll|jnilib)' || true)
echo "$natives native libraries of $(python3 -m zipfile -l disni-2.1.jar | tail -n +2 | wc -l) entries"
cat >Try.java <<'JAVA'
public class Try {
	public static void main(String[] words) throws Exception {
		try {
			com.ibm.disni.verbs.RdmaEventChannel.createEventChannel();
		} catch (UnsatisfiedLinkError e) {
			System.out.println(e.getMessage());
		}
	}
}
JAVA
said=$(java -Djava.library.path=/nowhere -cp "disni-2.1.jar:slf4j-api-1.7.12.jar" Try.java 2>/dev/null)
echo "$said"
[ "$natives" = 0 ] && [[ $said == "no disni in java.library.path"* ]]
