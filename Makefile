# For the hands that type make: every target forwards to script/.
.PHONY: all rebuild clean check test demo test_connection
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
