# For the hands that type make: every target forwards to script/.
# make install prefix=/opt/ropeway libdir=lib DESTDIR=/tmp/package
.PHONY: all rebuild clean check test demo test_connection install uninstall
PLACE = $(if $(prefix),--prefix '$(prefix)') $(if $(libdir),--libdir '$(libdir)')
export DESTDIR
all test_connection:
	@script/setup
rebuild: clean all
clean:
	@rm -rf build build-*
check:
	@script/test --check
test:
	@script/test
demo:
	@script/demo
install:
	@script/install $(PLACE)
uninstall:
	@script/install $(PLACE) --uninstall
